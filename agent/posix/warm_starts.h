// Starts workers as forks of the zygote (--warm, docs/warm.md), or cold.
//
// The zygote is a child of the shim (launcher/zygote.py). Its fork becomes a child of the shim,
// too: the process between them ends, and the shim is a subreaper. The fork then reports itself on
// a socket of its own, where the kernel tells its pid. It runs the script when the shim answers. So
// a fork that comes too late, or of which the shim does not know any more, runs nothing.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/zygote_life.h"
#include "agent/posix/report_queue.h"
#include "agent/posix/rescue_output.h"
#include "agent/posix/shim_protocol.h"
#include "agent/posix/spawn.h"
#include "agent/posix/worker_cgroup.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"
#include "base/time.h"

namespace muster {

struct WarmSetup {
  std::string program;  // The text of launcher/zygote.py.
  std::string modules;  // --warm=MODULES: names, separated by commas.
};

/// A fork of the zygote that runs the script from now on.
struct WarmWorker {
  int number = 0;  // ShimRequest::worker
  pid_t pid = -1;
  OwnedFd pidfd;
  std::vector<OutputReader> readers;
};

class WarmStarts {
 public:
  struct Context {
    const WarmSetup& setup;
    const WorkerSetup& workers;
    WorkerCgroup& cgroup;
    ReportQueue& outbox;
    std::function<void(int fd)> watch;  // See ShimWorkers::Context.
    std::function<void(int fd)> unwatch;
    std::function<void(const ShimRequest&, std::vector<OwnedFd>)> start_cold;
    std::function<void(WarmWorker)> adopt;
    std::function<bool()> job_is_stopped;  // By ctrl-Z: a fork does not run before SIGCONT.
  };
  explicit WarmStarts(Context context) : context_(std::move(context)) {}

  /// Ends with one call of start_cold or of adopt, now or later, unless stop() comes first.
  void start(const ShimRequest& request, std::vector<OwnedFd> fds);
  /// True if `fd` is one of the sockets that are watched.
  bool on_readable(int fd);
  void on_time(Instant now);
  std::optional<Instant> next_deadline() const { return life_.next_deadline(); }
  /// True if the child that was reaped is the zygote.
  bool on_end(const siginfo_t& info);
  /// The starts that wait are cold ones now.
  void abort();
  /// Kills the zygote, and forgets the starts that wait.
  void stop();

  bool has_waiting() const { return !pending_.empty(); }
  /// -1: there is none.
  pid_t zygote() const { return zygote_.pid; }

 private:
  struct Pending {
    ShimRequest request;
    std::vector<OwnedFd> fds;  // Those of the request.
    OwnedFd control;           // Open while a fork is under way.
  };
  void feed(const ZygoteEvent& event) { feed(event, now()); }
  void feed(const ZygoteEvent& event, Instant at);
  void apply(const LaunchZygote& action);
  void apply(const KillZygote& action);
  void apply(const ForkWorker& action);
  void apply(const StartCold& action);
  void apply(const ReportLostZygote& action);
  void measure();
  void receive_from_zygote();
  void receive_from_fork(int worker);
  void receive_message(std::string_view text);
  bool let_run(Pending& pending, pid_t pid, WarmWorker& worker);
  void close_zygote();

  Context context_;
  ZygoteLife life_;
  std::map<int, Pending> pending_;                // By ShimRequest::worker.
  std::shared_ptr<const PackedCommand> command_;  // Of the last start: the zygote's is made of it.
  BegunSpawn zygote_;
  OwnedFd socket_;                           // To the zygote.
  std::shared_ptr<const void> last_memory_;  // A killed zygote may use it for a moment.
  bool has_reported_memory_ = false;         // The agent knows the memory of a zygote.
  int reported_attempt_ = -1;                // Of the last report of a cold start.
};

}  // namespace muster
