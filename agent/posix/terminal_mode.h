// The mode of the terminal: a worker that is killed, or crashes, cannot set it back (raw, no echo).
#pragma once

#include <termios.h>

namespace muster {

class TerminalMode {
 public:
  /// Reads the mode of the terminal that is stdin, stdout or stderr, if one of them is.
  TerminalMode();
  /// Sets that mode again, and shows the cursor, if the mode is another one now. Does nothing in
  /// the background of a shell. True if it has changed anything.
  bool restore() const;

 private:
  int terminal_ = -1;
  termios mode_{};
};

}  // namespace muster
