// What the shim and the agent say to each other, over a SOCK_SEQPACKET pair between two processes
// of one binary. Each message is one packet of fixed size; a worker's argv and environment travel
// in a memfd beside it, as they may be megabytes.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/core/result.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

/// Agent to shim.
struct ShimRequest {
  enum class Kind : std::uint32_t {
    Start,   // Start worker `worker`, whose global rank is `number`; descriptors: the command's
             // memfd, then those of `streams`.
    Signal,  // Send `number` to the process group of worker `worker`, if it is alive.
    SignalProcess,  // The same to its process alone, which is not Told.
    KillAll,        // SIGKILL every descendant until there is none, then report AllGone.
    End,   // Kill what is left and end: by signal `number` if not 0, else with `exit_code`.
    Pong,  // Answers Ping `number`: the agent's loop is alive.
  };
  Kind kind = Kind::End;
  std::int32_t worker = 0;
  std::int32_t number = 0;
  std::int32_t exit_code = 0;
  std::uint32_t streams = 0;  // Bit n: a descriptor for the worker's descriptor n (0, 1, 2) comes.
};

/// Shim to agent.
struct ShimReport {
  enum class Kind : std::uint32_t {
    Started,      // `pid`
    StartFailed,  // `error` is an errno, `step` a SpawnStep.
    Exited,       // `code` and `status` are siginfo's si_code and si_status.
    AllGone,      // Answers KillAll. `pid`: one that could not be killed, or 0.
    Signalled,    // `count` new events (agent/core/signal_events.h) began with signal `status`.
    Ping,         // To be answered by Pong with `count` as its number.
    Told,         // The worker, alive, was sent signal `status`. `code` is 1 if it catches, ignores
                  // or blocks that one, so that it can end in its own way; else 0.
  };
  Kind kind = Kind::Signalled;
  std::int32_t worker = 0;
  std::int32_t pid = 0;
  std::int32_t error = 0;
  std::int32_t step = 0;
  std::int32_t code = 0;
  std::int32_t status = 0;
  std::int32_t count = 0;
  std::int64_t wall_ns = 0;  // When the shim saw it, since the epoch. For people and for order.
};

/// A worker's program, arguments, environment, CPUs and log files, in a memfd.
struct WorkerCommand {
  std::string path;               // To execve: already looked up.
  std::vector<std::string> argv;  // argv[0] included.
  std::vector<std::string> env;   // "NAME=value"
  std::set<int> cpus;             // That it is bound to; empty: those that the shim may use.
  /// Where the agent appends what stdout and stderr bring, a log file or a console: for the shim,
  /// if the agent dies. Empty: nowhere.
  std::array<std::string, 2> log_files;
};

/// A new close-on-exec memfd with `command`, or a pipe where `ulimit -f` is less than it needs.
Result<OwnedFd> pack_command(const WorkerCommand& command);

/// The command of such a descriptor.
struct PackedCommand {
  std::shared_ptr<std::string> bytes;  // What the pointers point into.
  const char* path = nullptr;
  std::vector<char*> argv;  // Null-terminated, as is the next.
  std::vector<char*> env;
  std::array<const char*, 2> log_files{};
  std::span<const std::byte> cpu_mask;  // As sched_setaffinity takes it; empty: not bound.
};
/// Nothing when `fd` does not hold a command. A pipe is empty afterwards.
std::optional<PackedCommand> read_command(int fd);

/// A connected pair, non-blocking and close-on-exec: {shim's end, agent's end}.
Result<std::pair<int, int>> make_shim_pair();

/// Sends one request with its descriptors. Errors: the errno of sendmsg; EAGAIN when full.
boost::system::error_code send_request(int socket, const ShimRequest& request,
                                       const std::vector<OwnedFd>& fds);
boost::system::error_code send_report(int socket, const ShimReport& report);

struct ReceivedRequest {
  ShimRequest request;
  std::vector<OwnedFd> fds;
};
/// The next packet. Errors: EAGAIN when there is none; ENOTCONN at end-of-file; EPROTO for a
/// packet of the wrong size.
Result<ReceivedRequest> receive_request(int socket);
Result<ShimReport> receive_report(int socket);

}  // namespace muster
