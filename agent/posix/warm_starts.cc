#include "agent/posix/warm_starts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "agent/core/stat_text.h"
#include "agent/posix/child_signals.h"
#include "agent/posix/process_scan.h"
#include "agent/posix/shim_reports.h"
#include "agent/posix/start_worker.h"
#include "base/from_errno.h"
#include "base/printable_text.h"

namespace muster {
namespace {

constexpr std::size_t kInterpreterWords = 2;  // "python", "-u": see plan_worker_command().
constexpr std::size_t kMessageBytesMax = 256;
constexpr std::size_t kStatusBytesMax = 16384;

/// A socket pair; not open if no descriptor is left.
std::array<OwnedFd, 2> open_socket_pair() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return {};
  return {OwnedFd(ends[0]), OwnedFd(ends[1])};
}

/// The command of a zygote for workers with this command.
struct ZygoteCommand {
  std::shared_ptr<const PackedCommand> worker;
  std::string modules;
  std::vector<char*> argv;
  std::vector<char*> env;
};

std::shared_ptr<ZygoteCommand> zygote_command(std::shared_ptr<const PackedCommand> worker,
                                              const WarmSetup& setup) {
  auto command = std::make_shared<ZygoteCommand>();
  command->modules = "MUSTER_ZYGOTE=" + setup.modules;
  command->argv = worker->argv;
  const auto at = command->argv.begin() + kInterpreterWords;
  static constexpr const char* kOption = "-c";
  command->argv.insert(at, {const_cast<char*>(kOption), const_cast<char*>(setup.program.c_str())});
  command->env = worker->env;
  command->env.insert(command->env.end() - 1, command->modules.data());
  command->worker = std::move(worker);
  return command;
}

/// Why a command cannot come from a zygote at all; empty: it can.
std::string unfit_reason(int fd, const std::optional<PackedCommand>& command) {
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode))
    return "the limit of file sizes (ulimit -f) is too small";
  if (!command || command->argv.size() <= kInterpreterWords) return "the command is not Python's";
  return {};
}

struct FromFork {
  std::string bytes;  // Empty: the fork has ended.
  pid_t sender = -1;
};

FromFork receive_with_sender(int socket) {
  FromFork received;
  std::array<char, kMessageBytesMax> data{};
  iovec part{data.data(), data.size()};
  msghdr message{};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) return received;
  received.bytes.assign(data.data(), static_cast<std::size_t>(n));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) continue;
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
    received.sender = credentials.pid;
  }
  return received;
}

/// Whether `pid` is a child of this process that leads its own session, and no other process.
bool is_own_child(pid_t pid) {
  siginfo_t info{};
  return pid > 0 && ::getsid(pid) == pid &&
         ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool bind_to(pid_t pid, std::span<const std::byte> cpu_mask) {
  return cpu_mask.empty() ||
         ::syscall(SYS_sched_setaffinity, pid, cpu_mask.size(), cpu_mask.data()) == 0;
}

}  // namespace

void WarmStarts::start(const ShimRequest& request, std::vector<OwnedFd> fds) {
  std::optional<PackedCommand> command;
  if (!fds.empty()) command = read_command(fds[0].get());
  const std::string unfit = unfit_reason(fds.empty() ? -1 : fds[0].get(), command);
  Pending& pending = pending_[request.worker];
  pending = {.request = request, .fds = std::move(fds), .control = {}};
  if (!unfit.empty() || !command) return apply(StartCold{request.worker, unfit});
  command_ = std::make_shared<const PackedCommand>(std::move(*command));
  feed(WarmStartAsked{request.worker});
}

void WarmStarts::feed(const ZygoteEvent& event, Instant at) {
  for (const ZygoteAction& action : life_.step(event, at))
    std::visit([this](const auto& a) { apply(a); }, action);
  if (has_reported_memory_ && life_.state() != ZygoteLife::State::Ready) {
    has_reported_memory_ = false;
    context_.outbox.add(zygote_memory(0));
  }
}

/// After the imports, and after each fork: at other times the zygote waits, and cannot grow.
void WarmStarts::measure() {
  if (zygote_.pid <= 0) return;
  const std::string path = "/proc/" + std::to_string(zygote_.pid) + "/status";
  const std::uint64_t bytes = own_memory_in(read_proc_file(path.c_str(), kStatusBytesMax));
  if (bytes == 0) return;      // It has just ended.
  if (!life_.has_waiting()) {  // Once for all workers of an attempt.
    context_.outbox.add(zygote_memory(bytes));
    has_reported_memory_ = true;
  }
  feed(ZygoteMeasured{bytes});
}

void WarmStarts::apply(const LaunchZygote&) {
  std::array<OwnedFd, 2> pair = open_socket_pair();
  const OwnedFd output(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!pair[0].is_open() || !output.is_open())
    return feed(ZygoteEnded{"could not be started: no descriptor is left"});
  const auto command = zygote_command(command_, context_.setup);
  SpawnOptions options{
      .path = command->worker->path, .argv = command->argv.data(), .env = command->env.data()};
  options.fds = {pair[1].get(), output.get(), -1};
  options.signals = &context_.workers.signals;
  options.not_default = &context_.workers.not_default;
  options.file_limit = &context_.workers.file_limit;
  options.owner = command;
  zygote_ = begin_spawn(options);
  if (zygote_.error != 0)
    return feed(ZygoteEnded{"could not be started: " + from_errno(zygote_.error).message()});
  socket_ = std::move(pair[0]);
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);  // A stopped zygote must not stop the shim.
  context_.watch(socket_.get());
}

void WarmStarts::apply(const KillZygote&) {
  if (zygote_.pid > 0) ::kill(zygote_.pid, SIGKILL);  // Not reaped yet: the pid is still its own.
  close_zygote();
}

void WarmStarts::close_zygote() {
  if (socket_.is_open()) context_.unwatch(socket_.get());
  socket_.reset();
  last_memory_ = std::move(zygote_.memory);
  zygote_ = {};
}

void WarmStarts::apply(const ForkWorker& action) {
  const auto found = pending_.find(action.worker);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  std::array<OwnedFd, 2> pair = open_socket_pair();
  const int on = 1;
  if (!pair[0].is_open() ||
      ::setsockopt(pair[0].get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return feed(ForkFailed{action.worker});
  std::vector<OwnedFd> lent;  // Of `pending`, of `pair`, and this process's own streams.
  lent.emplace_back(pending.fds[0].get());
  lent.emplace_back(pair[1].get());
  std::size_t next = 1;
  for (int stream = 0; stream < 3; ++stream) {
    const bool is_given = (pending.request.streams >> stream & 1) != 0 && next < pending.fds.size();
    lent.emplace_back(is_given ? pending.fds[next++].get() : stream);
  }
  const auto error = send_message(socket_.get(), pending.request.attempt, lent);
  for (OwnedFd& fd : lent)
    fd.release();
  if (error) return feed(ForkFailed{action.worker});
  pending.control = std::move(pair[0]);
  context_.watch(pending.control.get());
}

void WarmStarts::apply(const StartCold& action) {
  const auto found = pending_.find(action.worker);
  if (found == pending_.end()) return;
  Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.control.is_open()) context_.unwatch(pending.control.get());
  // One line for an attempt: a later reason follows from the first one (a new zygote imports).
  if (!action.reason.empty() && pending.request.attempt != reported_attempt_) {
    context_.outbox.add(started_cold(pending.request.attempt, action.reason));
    reported_attempt_ = pending.request.attempt;
  }
  context_.start_cold(pending.request, std::move(pending.fds));
}

void WarmStarts::apply(const ReportLostZygote& action) {
  context_.outbox.add(zygote_lost(action.reason, action.is_replaced));
}

bool WarmStarts::on_readable(int fd) {
  if (socket_.is_open() && fd == socket_.get()) {
    receive_from_zygote();
    return true;
  }
  for (const auto& [worker, pending] : pending_) {
    if (!pending.control.is_open() || pending.control.get() != fd) continue;
    receive_from_fork(worker);
    return true;
  }
  return false;
}

void WarmStarts::receive_from_zygote() {
  while (socket_.is_open()) {
    std::array<char, kMessageBytesMax> data{};
    const ssize_t n = ::recv(socket_.get(), data.data(), data.size(), MSG_DONTWAIT);
    if (n < 0) return;
    if (n == 0) {  // It has ended or is ending: on_end() follows.
      context_.unwatch(socket_.get());
      if (zygote_.pid > 0) ::kill(zygote_.pid, SIGKILL);
      return;
    }
    receive_message({data.data(), static_cast<std::size_t>(n)});
  }
}

/// The zygote has imported modules of anybody: it is not trusted.
void WarmStarts::receive_message(std::string_view text) {
  if (text == "R" && life_.state() == ZygoteLife::State::Importing) {
    context_.outbox.add(zygote_ready(zygote_.pid));
    feed(ImportsDone{});
    return measure();
  }
  if (text[0] == 'N' || text[0] == 'S')
    return feed(ZygoteRefused{.reason = terminal_line(text.substr(1)), .is_stale = text[0] == 'S'});
  // Closes the socket: a zygote that sends without end keeps nobody busy.
  feed(ZygoteRefused{"an import has written to the zygote's socket"});
}

void WarmStarts::receive_from_fork(int worker) {
  Pending& pending = pending_.at(worker);
  const FromFork message = receive_with_sender(pending.control.get());
  WarmWorker started{.number = worker, .pid = message.sender, .pidfd = {}, .readers = {}};
  if (message.bytes != "P" || message.sender == zygote_.pid ||
      !let_run(pending, message.sender, started))
    return feed(ForkFailed{worker});
  context_.unwatch(pending.control.get());
  pending_.erase(worker);
  feed(ForkDone{worker});
  context_.adopt(std::move(started));
  measure();
}

/// Gives the fork what a cold worker gets from the shim, and lets it run the script. False: it runs
/// nothing.
bool WarmStarts::let_run(Pending& pending, pid_t pid, WarmWorker& worker) {
  if (!is_own_child(pid)) return false;
  worker.pidfd = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const std::optional<PackedCommand> command = read_command(pending.fds[0].get());
  if (!worker.pidfd.is_open() || !command || !bind_to(pid, command->cpu_mask)) return false;
  ::fcntl(worker.pidfd.get(), F_SETFD, FD_CLOEXEC);
  context_.cgroup.add(pid);
  // Before the answer: with its modules imported, the script would do much until a later SIGSTOP.
  if (context_.job_is_stopped()) ::kill(pid, SIGSTOP);
  if (::send(pending.control.get(), "G", 1, MSG_NOSIGNAL) != 1) return false;
  worker.readers = worker_readers(pending.request, pending.fds, *command);
  return true;
}

void WarmStarts::on_time(Instant now) {
  if (const auto deadline = life_.next_deadline(); deadline && now >= *deadline)
    feed(ZygoteTimePassed{}, now);
}

bool WarmStarts::on_end(const siginfo_t& info) {
  if (info.si_pid != zygote_.pid) return false;
  zygote_.pid = -1;       // Reaped: another process may get this pid.
  receive_from_zygote();  // It may have said why.
  if (zygote_.pid != -1 || !socket_.is_open()) return true;
  close_zygote();
  feed(ZygoteEnded{describe_end(info)});
  return true;
}

void WarmStarts::abort() {
  if (has_waiting()) feed(WarmStartsAborted{});
}

void WarmStarts::stop() {
  for (auto& [worker, pending] : pending_)
    if (pending.control.is_open()) context_.unwatch(pending.control.get());
  pending_.clear();
  apply(KillZygote{});
}

}  // namespace muster
