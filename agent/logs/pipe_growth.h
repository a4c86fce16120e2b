// The sizes of workers' pipes: large, as long as the user's other programs keep pages for theirs.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/core/pipe_size.h"

namespace muster {

/// The pages that one user may have in all pipes (fs.pipe-user-pages-soft). 0: any number.
std::size_t user_pipe_pages();

/// Makes a pipe (either end of it) as large as the kernel allows, up to `bytes`.
void grow_pipe(int pipe, std::size_t bytes);

/// Makes pipes of one attempt smaller again if they leave too little. Several jobs of a user may
/// grow their pipes at the same time. A check takes 0.1 ms and more: the log thread makes it while
/// the workers start.
class PipeReserve {
 public:
  /// A pipe has been grown. It becomes smaller until half of the user's pages are left.
  void keep(int pipe);

 private:
  struct Limits {
    std::size_t user_pages = 0;  // user_pipe_pages().
    bool has_hard_limit = false;
    std::size_t pipe_bytes = 0;  // In one pipe (fs.pipe-max-size).
    std::size_t page_bytes = 0;
    std::size_t descriptors = 0;  // This process may have open (`ulimit -n`).
  };

  static Limits read_limits();
  /// Whether enough pages are left. True if there are no descriptors to find out.
  bool is_left();

  static constexpr std::size_t kCheckEveryBytes = 4 * kPipeBytesMax;

  std::optional<Limits> limits_;   // Read when they are needed.
  std::size_t refused_bytes_ = 0;  // The smallest size that left too few pages; 0: none.
  // Growth since the last check: the first pipe is checked.
  std::size_t unchecked_bytes_ = kCheckEveryBytes;
};

}  // namespace muster
