// Timers that workers set through a pipe with a name (TORCHELASTIC_ENABLE_FILE_TIMER=1): a process
// of a worker that does not call its timer off in time gets the signal that it asked for itself.
//
// Requests and their meaning: agent/core/timer_table.h. Unlike torchrun's, the agent does not die
// with the process: the worker's death is a failure like others, and a restart may follow.
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

/// The pipe and its place in the file system: chosen before the shim and the agent part, made by
/// the agent, so that whoever is left can remove it.
class TimerFifo {
 public:
  /// Nothing if `environment` does not ask for it. Else chooses the place that
  /// TORCHELASTIC_TIMER_FILE names, or one in the temporary directory, which names the calling
  /// process as its owner, and sets the variable in `environment`, from which workers inherit it.
  static std::optional<TimerFifo> choose(std::vector<std::string>& environment);

  /// Makes it. An old pipe in its place is replaced; whatever else is there stays, and is an error.
  boost::system::error_code make();

  const std::string& path() const { return path_; }
  /// To read from, without blocking. Also open for writing: so it does not end when no worker has
  /// it.
  int fd() const { return fd_.get(); }
  /// Removes it, if it has been made here, and no other in its place since.
  void remove() const;
  /// Removes a pipe there that nobody reads: for when the agent is gone, and could not. One that
  /// another job has made in its place has a reader.
  void remove_unread() const;
  /// Removes such pipes beside it whose owners are gone.
  void tidy_after_dead_owners() const;

 private:
  std::string path_;
  bool names_owner_ = false;
  OwnedFd fd_;  // As long as it is open, no other file gets its number.
};

class FileTimer : public WorkerObserver {
 public:
  /// A timer of `pid` ran out: it belongs to the worker `rank` (and is that itself, if
  /// `is_worker`).
  struct Expired {
    LocalRank rank;
    pid_t pid = 0;
    bool is_worker = false;
    std::string scope;
    int signal = 0;  // What it got; 0 and below: the timer asked for none.
  };
  using OnExpired = std::function<void(const Expired&)>;

  /// Listens at once. `on_expired` is called after the process was signalled; requests that are
  /// wrong, and timers of processes that are no worker's, are logged and have no effect.
  FileTimer(boost::asio::io_context& io, WorkerTable& workers, const TimerFifo& fifo,
            OnExpired on_expired);
  ~FileTimer() override { pipe_.release(); }  // The descriptor is the TimerFifo's.
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  /// Timers of the last attempt, and requests that have not been read yet, are forgotten.
  void attempt_begins() override;
  void worker_started(const RunningWorker& worker) override;
  void worker_ended(const RunningWorker& worker, const WorkerExit& exit) override;

 private:
  void wait_to_read();
  /// Reads what is there; false if the pipe cannot be read any more.
  bool drain(bool keep);
  void take(const std::string& line);
  void make_room();
  void arm();
  void look();
  /// False if `timer` is no worker's, as far as is known.
  bool carry_out(const ExpiredTimer& timer);

  const WorkerTable& workers_;
  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::steady_timer timer_;
  std::optional<Instant> armed_;
  OnExpired on_expired_;
  TimerLines lines_;
  TimerTable table_;
  std::vector<ExpiredTimer> ownerless_;  // Their worker may be about to be made known.
  std::vector<char> buffer_;
  LogLimiter complaints_;
};

}  // namespace muster
