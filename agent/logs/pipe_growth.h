// The sizes of workers' pipes: large, as long as the user's other programs keep pages for theirs.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/core/pipe_size.h"

namespace muster {

/// The pages that one user may have in all pipes (fs.pipe-user-pages-soft). 0: any number.
std::size_t user_pipe_pages();

/// Makes a new pipe (either end of it) smaller, or as large as the kernel allows, up to `bytes`.
void resize_pipe(int pipe, std::size_t bytes);

/// Makes the pipes of an attempt smaller again if they leave too little. Several jobs of a user may
/// make their pipes at the same time. A check takes 0.1 ms and more: the log thread makes it while
/// the workers start.
class PipeReserve {
 public:
  /// A pipe has been made, which should have `wanted_bytes`. It becomes smaller until enough of the
  /// user's pages are left (reserved_part()). If that does not help, the log says so once.
  void keep(int pipe, std::size_t wanted_bytes);
  /// The attempt's pipes are gone or will be: what was found out about the pages is forgotten.
  void begin_attempt();

 private:
  struct Limits {
    std::size_t user_pages = 0;  // user_pipe_pages().
    bool has_hard_limit = false;
    std::size_t pipe_bytes = 0;  // In one pipe (fs.pipe-max-size).
    std::size_t page_bytes = 0;
    std::size_t descriptors = 0;  // This process may have open (`ulimit -n`).
  };

  static Limits read_limits();
  const Limits& limits();
  /// Whether this part of the user's pages is left. True if there are no descriptors to find out.
  bool is_left(std::size_t part);
  void warn();

  static constexpr std::size_t kCheckEveryBytes = 4 * kPipeBytesMax;

  std::optional<Limits> limits_;   // Read when they are needed.
  std::size_t refused_bytes_ = 0;  // The smallest size that left too few pages; 0: none.
  // Growth since the last check: the first pipe is checked.
  std::size_t unchecked_bytes_ = kCheckEveryBytes;
  bool has_warned_ = false;
};

}  // namespace muster
