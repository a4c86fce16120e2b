// Timers that workers set through a named pipe (TORCHELASTIC_ENABLE_FILE_TIMER=1): a process of a
// worker that does not cancel its timer in time gets the signal that its request named.
//
// agent/core/timer_table.h defines the requests. Unlike torchrun's, the agent does not end with the
// process: the worker's death is a failure like any other, and a restart may follow.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/timer_table.h"
#include "agent/core/worker_table.h"
#include "agent/io/temporary_folder.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/system/log_limiter.h"
#include "base/system/owned_fd.h"

namespace muster {

/// The pipe and its folder. The folder is chosen before the shim and the agent are split, and the
/// agent creates the pipe: so each of the processes can remove it if the others die.
class TimerFifo {
 public:
  /// Returns nothing if `environment` does not enable file timers. Otherwise uses the path in
  /// TORCHELASTIC_TIMER_FILE or, if that is not set, a new temporary folder. The pipe cannot be in
  /// the run directory: a job may have none, or one on a file system without pipes.
  static std::optional<TimerFifo> choose(const std::vector<std::string>& environment);

  /// Creates the folder if choose() chose it, and the pipe. Replaces an old pipe at this path; any
  /// other file stays, and is an error. `what_failed` names the path, or the places that cannot be
  /// used. If the pipe is lost, create() makes a new one. The descriptor of the lost pipe stays
  /// open until the next call, because the reader still uses it.
  boost::system::error_code create(std::string& what_failed);
  /// Whether nothing is at the path any more.
  bool is_lost() const;

  /// The value of TORCHELASTIC_TIMER_FILE for the workers. Empty until the pipe is created, if
  /// choose() chose the folder.
  const std::string& path() const { return path_; }
  /// A line that says why the pipe is not in the first place of its folder; empty: it is.
  std::string fallback() const;
  /// For reading, without blocking. It is also open for writing, so that there is no end-of-file
  /// when no worker has the pipe open.
  int fd() const { return fd_.get(); }
  /// The lock on the folder. Not open if there is no lock.
  const OwnedFd& lock() const { return folder_.lock(); }
  /// Removes the pipe if this object created it, and no other file has taken its path since; then
  /// the folder. Nothing is read from the pipe any more.
  void remove() const;
  /// Removes a pipe at this path that nobody reads: for another process, after the agent is gone
  /// without having removed it. A pipe that another job has created there since has a reader.
  void remove_unread() const;
  /// If choose() chose the folder: removes what dead owners left beside it.
  void remove_orphans() const { folder_.remove_orphans(); }

 private:
  boost::system::error_code create_pipe();
  void close_pipes() const;

  std::string path_;
  bool is_given_ = false;  // TORCHELASTIC_TIMER_FILE was set: there is no folder.
  TemporaryFolder folder_;
  OwnedFd fd_;       // While it is open, no other file gets its inode.
  OwnedFd lost_fd_;  // Of the pipe before, which was removed.
};

class FileTimer : public WorkerObserver {
 public:
  /// A timer of the process `pid` has run out. The process belongs to the worker `rank`, and is
  /// that worker itself if `is_worker`.
  struct Expired {
    LocalRank rank;
    pid_t pid = 0;
    bool is_worker = false;
    std::string scope;
    int signal = 0;  // The signal that the process got; 0 or less: the timer asked for none.
  };
  using OnExpired = std::function<void(const Expired&)>;

  /// Reads requests from now on. Calls `on_expired` after the process was signalled. Invalid
  /// requests, and timers of processes that belong to no worker, are logged and have no effect.
  FileTimer(boost::asio::io_context& io, WorkerTable& workers, const TimerFifo& fifo,
            OnExpired on_expired);
  ~FileTimer() override { pipe_.release(); }  // The TimerFifo owns the descriptor.
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  /// Reads this pipe from now on, in place of one that was lost.
  void read_pipe(const TimerFifo& fifo);
  /// Forgets the timers of the last attempt, and requests that are not read yet.
  void attempt_begins() override;
  void worker_started(const RunningWorker& worker) override;
  void worker_ended(const RunningWorker& worker, const WorkerExit& exit) override;

 private:
  void wait_to_read();
  /// Reads into buffer_. Returns 0 bytes if no bytes wait, and no value if the pipe cannot be read.
  std::optional<std::size_t> read_piece();
  /// Reads one piece, and handles its requests. False if the pipe cannot be read.
  bool handle_piece();
  void handle_line(const std::string& line);
  void make_room();
  void arm();
  void expire_timers();
  /// Signals the process of `timer`. False if it belongs to no worker that the agent knows.
  bool signal_owner(const ExpiredTimer& timer);

  const WorkerTable& workers_;
  boost::asio::posix::stream_descriptor pipe_;
  int pipes_ = 0;  // Counts read_pipe().
  boost::asio::steady_timer timer_;
  std::optional<Instant> armed_;
  OnExpired on_expired_;
  TimerLines lines_;
  TimerTable table_;
  std::vector<ExpiredTimer> ownerless_;  // The start of their worker may not be reported yet.
  std::vector<char> buffer_;
  LogLimiter complaints_;
};

}  // namespace muster
