// The consoles of a job: stdout and stderr, or one if both lead to the same place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/line_merger.h"
#include "agent/logs/interest_set.h"
#include "agent/logs/log_mailbox.h"
#include "base/system/log_console.h"
#include "base/time.h"

namespace muster {

/// If a console has more unwritten bytes, its streams wait.
inline constexpr std::size_t kMaxUnwrittenBytes = 1 << 20;

/// A console, with the merger that keeps the lines of its streams apart.
struct LogOutput {
  explicit LogOutput(int fd) : console(fd) {}
  /// False if the streams of this console must wait. Streams never wait for a lossy console.
  bool has_room() const {
    return console.is_lossy() || console.unwritten_bytes() <= kMaxUnwrittenBytes;
  }
  LogConsole console;
  LineMerger merger;
};

class LogConsoles {
 public:
  /// The caller still owns both descriptors.
  LogConsoles(int stdout_fd, int stderr_fd);

  /// The errno of a descriptor that could not be copied; 0: there is none.
  int open_error() const;
  LogOutput& of(LogStream stream);
  const LogOutput& of(LogStream stream) const;
  std::size_t size() const { return outputs_.size(); }  // 1 or 2.

  void flush();
  bool any_is_full() const;
  /// All bytes are written, dropped, or their readers are gone.
  bool all_shown() const;
  std::size_t lost_bytes() const;
  /// Ends the waits for consoles. A console that has accepted all bytes so far is kept.
  void give_up_unwritten();
  void give_up_failing();
  /// Lines about the bytes that were lost since the last call.
  std::vector<std::string> take_losses();

  /// Watches for room on the consoles with unwritten bytes. Their ids begin at `first_id`.
  void update_interests(InterestSet& set, std::uint64_t first_id);
  /// When to flush() again without an event: epoll cannot tell when each console has room. `next`
  /// if that is earlier.
  Instant next_flush(Instant now, Instant next) const;

 private:
  struct Output : LogOutput {
    using LogOutput::LogOutput;
    std::uint32_t interest = 0;
    bool can_wait = true;            // False: epoll does not support this descriptor.
    std::size_t reported_bytes = 0;  // Lost bytes that take_losses() has reported.
  };

  std::vector<std::unique_ptr<Output>> outputs_;
};

}  // namespace muster
