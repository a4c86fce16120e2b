// The lines that say which processes muster ends, in torchrun's words, which scripts look for.
#pragma once

#include <optional>
#include <string>

namespace muster {

/// One line for each process, up to a number, and one for all others.
class StopLines {
 public:
  static constexpr int kMaxLines = 8;

  /// What to say when `pid` was sent `signal`; nothing: it is counted in a line that was said
  /// already. `alive`: how many processes live, those of this stop together.
  std::optional<std::string> told(int pid, int signal, int alive);
  /// The next signals are another stop's: of the same workers again, or of the next attempt's.
  void begin_stop() { lines_ = 0; }
  void begin_attempt() { signal_ = before_ = lines_ = 0; }

 private:
  int signal_ = 0;  // That is being sent.
  int before_ = 0;  // What did not help; 0: nothing was tried.
  int lines_ = 0;
};

}  // namespace muster
