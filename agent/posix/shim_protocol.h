// The messages between shim and agent, and how front, shim and agent send messages. They use a
// SOCK_SEQPACKET pair between two processes of one binary. Each message is one packet of fixed
// size. A worker's argv and environment may have megabytes: they travel in a memfd beside the
// packet.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

/// From the agent to the shim.
struct ShimRequest {
  enum class Kind : std::uint32_t {
    /// Start worker `worker` of attempt `attempt`, whose global rank is `number`. The packet's
    /// descriptors are the memfd of the command, then those of `streams`, then those of `handles`.
    Start,
    /// Send `number` to the process group of worker `worker`, if the worker is alive. If the worker
    /// catches it, only to the worker, and to the rest of its group `until_group_ms` later, or when
    /// the worker has ended.
    Signal,
    SignalProcess,  // Send `number` to that worker's process only, without a report.
    /// Kill the workers that live. Give what is left of the attempt the time `until_sigterm_ms` to
    /// end, send it SIGTERM, and after `until_sigkill_ms` SIGKILL until there is none. Then report
    /// AllGone. If this is under way, the times become the smaller ones of both requests.
    KillAll,
    End,   // Kill what is left and end: by signal `number` if not 0, else with `exit_code`.
    Pong,  // The answer to Ping `number`: the agent's loop is alive.
    Keep,  // Keep the packet's descriptors open until the end: the locks on the job's folders.
  };
  Kind kind = Kind::End;
  std::int32_t worker = 0;
  std::int32_t number = 0;
  std::int32_t exit_code = 0;
  std::uint32_t streams = 0;  // Bit n: the packet has a descriptor for the worker's fd n (0, 1, 2).
  /// Bit n: the packet has an O_PATH descriptor of the log file of the worker's fd n (1, 2), or if
  /// that is a terminal, the end that reads what is written to it.
  std::uint32_t handles = 0;
  std::int32_t attempt = 0;  // TORCHELASTIC_RESTART_COUNT
  std::int64_t until_group_ms = 0;
  std::int64_t until_sigterm_ms = 0;
  std::int64_t until_sigkill_ms = 0;
};

/// A descendant of the workers that outlived them, in ShimReport::Kind::Leftovers.
struct LeftProcess {
  std::int32_t pid = 0;            // 0: the report has no more processes.
  std::array<char, 20> name = {};  // As in /proc/PID/comm. Ends with a NUL.
};

/// From the shim to the agent.
struct ShimReport {
  enum class Kind : std::uint32_t {
    Started,      // The program runs as process `pid`.
    StartFailed,  // `error` is an errno, `step` a SpawnStep.
    Exited,       // `code` and `status` are siginfo's si_code and si_status.
    AllGone,      // The answer to KillAll. `pid`: a process that could not be killed, or 0.
    /// After KillAll: `count` descendants are left, of which `left` names some. `status` is the
    /// LeftoverStage that begins now, `limit_ms` the whole time until SIGTERM.
    Leftovers,
    /// Signal `status` of --signals-to-forward has come. `count`: so many workers got it from
    /// muster; -1: every process of the job had it already.
    Forwarded,
    SignalReceived,  // `count` new events (agent/core/signal_events.h) began with signal `status`.
    Ping,            // The agent answers Pong with `count` as its number.
    /// The shim sent signal `status` to the worker, which was alive. `code` is 1 if the worker
    /// catches, ignores or blocks that signal, and so can end in its own way; else 0.
    WorkerSignalled,
    /// --warm: workers of attempt `count` start cold, because of `text`.
    StartedCold,
    ZygoteReady,  // The zygote, process `pid`, has done its imports.
    /// The zygote's own memory is `bytes` now; 0: there is none.
    ZygoteMemory,
    /// The zygote was lost while no worker started, because of `text`. `code` is 1 if a new one is
    /// made; else 0.
    ZygoteLost,
  };
  Kind kind = Kind::SignalReceived;
  std::int32_t worker = 0;
  std::int32_t pid = 0;
  std::int32_t error = 0;
  std::int32_t step = 0;
  std::int32_t code = 0;
  std::int32_t status = 0;
  std::int32_t count = 0;
  std::int64_t wall_ms = 0;  // When the shim saw this, since the epoch. For people and for order.
  std::int64_t clock_offset_ms = 0;  // clock_offset_ms() at that time.
  std::int64_t limit_ms = 0;
  std::uint64_t bytes = 0;
  std::array<LeftProcess, 8> left = {};
  std::array<char, 160> text = {};  // Ends with a NUL.
};

/// A worker's program, arguments, environment, CPUs and log files, in a memfd.
struct WorkerCommand {
  std::string path;               // For execve, without a search in PATH.
  std::vector<std::string> argv;  // Including argv[0].
  std::vector<std::string> env;   // "NAME=value"
  std::set<int> cpus;             // The worker is bound to these; empty: to the shim's own CPUs.
  /// The files, log files or consoles, to which the agent appends the worker's stdout and stderr.
  /// If the agent dies, the shim appends to them instead. Empty: the output is not kept.
  std::array<std::string, 2> log_files;
};

/// Writes `command` into a new close-on-exec memfd. Uses a pipe if `ulimit -f` is smaller than the
/// command.
Result<OwnedFd> pack_command(const WorkerCommand& command);

/// A command that was read from the descriptor of pack_command().
struct PackedCommand {
  std::shared_ptr<std::string> bytes;  // The memory that all members below point into.
  const char* path = nullptr;
  std::vector<char*> argv;  // Ends with a null pointer.
  std::vector<char*> env;   // Ends with a null pointer.
  std::array<const char*, 2> log_files{};
  std::span<const std::byte> cpu_mask;  // As sched_setaffinity takes it; empty: not bound.
};
/// No value if `fd` does not hold a command. A pipe is empty afterwards.
std::optional<PackedCommand> read_command(int fd);

/// A connected pair, non-blocking and close-on-exec: {shim's end, agent's end}.
Result<std::pair<int, int>> make_shim_pair();

// The bytes of a message as one packet: see send_message() and receive_message().
boost::system::error_code send_packet(int socket, const void* data, std::size_t bytes,
                                      const std::vector<OwnedFd>& fds);
Result<std::vector<OwnedFd>> receive_packet(int socket, void* data, std::size_t bytes);

/// A message, and the descriptors that came with it.
template <typename Message>
struct Received {
  Message message;
  std::vector<OwnedFd> fds;
};

/// Sends one message with its descriptors. Errors: the errno of sendmsg; EAGAIN when full.
template <typename Message>
boost::system::error_code send_message(int socket, const Message& message,
                                       const std::vector<OwnedFd>& fds = {}) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return send_packet(socket, &message, sizeof message, fds);
}

/// Receives the next message. Errors: EAGAIN if there is none; ENOTCONN at end-of-file; EPROTO for
/// a packet of the wrong size.
template <typename Message>
Result<Received<Message>> receive_message(int socket) {
  Received<Message> received;
  auto fds = receive_packet(socket, &received.message, sizeof received.message);
  if (!fds) return fds.error();
  received.fds = std::move(*fds);
  return received;
}

}  // namespace muster
