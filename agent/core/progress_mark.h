// What the content of --progress-file says about the progress of an attempt.
//
// Pure. A script writes a number there, such as its step, or anything that changes when it has got
// further. docs/supervision.md, "Restarts".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace muster {

/// So many bytes of the file are compared.
inline constexpr std::size_t kMaxProgressFileBytes = 4096;

struct Progressed {
  std::optional<std::int64_t> step = {};  // Empty: the progress has no number.
  bool operator==(const Progressed&) const = default;
};

class ProgressMark {
 public:
  /// The content before an attempt's workers start. Empty: there is no file.
  void begin(std::optional<std::string> content) {
    last_ = std::move(content);
    made_.reset();
  }
  /// The content now. Returns the latest progress of the attempt. Empty: there was none.
  const std::optional<Progressed>& read(std::optional<std::string> content);

 private:
  std::optional<std::string> last_;
  std::optional<Progressed> made_;
};

}  // namespace muster
