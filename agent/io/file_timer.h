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
#include "rendezvous/core/ids.h"
#include "rendezvous/core/result.h"
#include "rendezvous/net/log_limiter.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

/// The pipe and its path. The path is chosen before the shim and the agent are split, and the agent
/// creates the pipe: so each of the processes can remove it if the others die.
class TimerFifo {
 public:
  /// Returns nothing if `environment` does not enable file timers. Otherwise uses the path in
  /// TORCHELASTIC_TIMER_FILE. If that is not set, chooses a path in a new folder in the temporary
  /// directory, and sets the variable in `environment` for workers. The pipe cannot be in the run
  /// directory, because the place of that directory is not known yet, and a job may have none.
  static std::optional<TimerFifo> choose(std::vector<std::string>& environment);

  /// Creates the folder if choose() chose it, and the pipe. Replaces an old pipe at this path; any
  /// other file stays, and is an error. If the pipe is lost, create() makes a new one. The
  /// descriptor of the lost pipe stays open until the next call, because the reader still uses it.
  boost::system::error_code create();
  /// Whether nothing is at the path any more.
  bool is_lost() const;

  const std::string& path() const { return path_; }
  /// For reading, without blocking. It is also open for writing, so that there is no end-of-file
  /// when no worker has the pipe open.
  int fd() const { return fd_.get(); }
  /// The lock on the folder. Not open if there is no lock.
  const OwnedFd& lock() const { return lock_; }
  /// Removes the pipe if this object created it, and no other file has taken its path since; then
  /// the folder.
  void remove() const;
  /// Removes a pipe at this path that nobody reads: for another process, after the agent is gone
  /// without having removed it. A pipe that another job has created there since has a reader.
  void remove_unread() const;
  /// If choose() chose the path: removes what dead owners left in the temporary directory.
  void remove_orphans() const;

 private:
  void remove_folder() const;

  std::string path_;
  std::string folder_;  // That choose() chose; empty: TORCHELASTIC_TIMER_FILE was set.
  OwnedFd lock_;        // On `folder_`.
  OwnedFd fd_;          // While it is open, no other file gets its inode.
  OwnedFd lost_fd_;     // Of the pipe before, which was removed.
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
