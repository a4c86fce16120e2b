#include "launcher/hosts/ssh_hosts.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <spdlog/spdlog.h>

#include "agent/core/line_assembler.h"
#include "base/printable_text.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"
#include "base/system/wait_for_room.h"
#include "launcher/hosts/hosts_job.h"

namespace muster {
namespace {

// An empty line says this often that muster lives; the host waits kSilenceMost (node_of_hosts.cc).
constexpr Duration kBeat = std::chrono::seconds(20);
constexpr int kBeatMs = 20'000;
constexpr std::size_t kMaxFirstLineBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxLastWordsBytes = 400;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr int kEndSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kPassedSignals[] = {SIGUSR1, SIGUSR2};

std::system_error last_error(const char* call) {
  return {errno, std::system_category(), call};
}

struct Pipe {
  OwnedFd read;
  OwnedFd write;
};

Pipe make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw last_error("pipe2");
  return {OwnedFd(fds[0]), OwnedFd(fds[1])};
}

void do_not_block(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw last_error("fcntl");
}

/// The ssh of one host.
struct Peer {
  std::string name;
  pid_t pid = -1;
  OwnedFd pidfd;
  OwnedFd input;   // ssh's stdin.
  OwnedFd output;  // Its stdout.
  OwnedFd errors;  // Its stderr.
  std::string unsent;
  bool closes = false;     // The input is closed when all is sent.
  bool has_job = false;    // Lines may be sent that say that muster lives.
  bool greeted = false;    // What follows on stdout is the output of the job.
  std::string first_line;  // What stdout had so far of a line, before the greeting.
  std::string last_words;  // The last line of stderr.
  LineAssembler output_lines;
  LineAssembler error_lines;
};

// Runs between fork and exec: system calls only.
[[noreturn]] void exec_ssh(char** argv, int in, int out, int err, const sigset_t& mask) {
  for (const int number : kEndSignals)
    ::signal(number, SIG_DFL);
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::setpgid(0, 0);  // ctrl-C at the terminal is muster's to pass on.
  if (::dup2(in, STDIN_FILENO) >= 0 && ::dup2(out, STDOUT_FILENO) >= 0 &&
      ::dup2(err, STDERR_FILENO) >= 0)
    ::execvp(argv[0], argv);
  constexpr std::string_view kWords = "ssh cannot be executed: is it installed?\n";
  if (::write(STDERR_FILENO, kWords.data(), kWords.size()) < 0) ::_exit(255);
  ::_exit(255);  // As ssh itself when it cannot do its work.
}

class HostsRun {
 public:
  explicit HostsRun(const HostsPlan& plan);
  int run();

 private:
  void block_signals();
  void start(std::size_t host);
  void wait_and_handle();
  void read_signals();
  void read_output(std::size_t host, bool of_stderr);
  void take_output(std::size_t host, std::string_view bytes);
  void take_lines(Peer& peer, std::string_view bytes, bool of_stderr);
  void reap(std::size_t host);
  void send_unsent(Peer& peer);
  void beat();
  void feed(const HostsJob::Event& event);
  void apply(const HostsJob::SendJob& action);
  void apply(const HostsJob::SendSignal& action);
  void apply(const HostsJob::CloseInput& action);
  void apply(const HostsJob::Kill& action);
  void apply(const HostsJob::Say& action);
  void apply(const HostsJob::Finish& action) { finish_ = action; }
  void write_console(int fd, std::string_view text);
  Instant next_deadline() const;
  int poll_ms() const;

  const HostsPlan& plan_;
  HostsJob job_;
  std::vector<Peer> peers_;
  sigset_t old_mask_{};
  OwnedFd signals_;
  Instant next_beat_;
  std::optional<HostsJob::Finish> finish_;
};

/// Shows each line with the host's name in front.
class NamedLines final : public LineSink {
 public:
  explicit NamedLines(const std::string& name) : prefix_("[" + name + "] ") {}
  void append(const LinePiece& piece) override {
    if (piece.begins) text_ += prefix_;
    text_ += piece.text;
    if (!piece.text.empty()) last_ = piece.text.substr(0, kMaxLastWordsBytes);
    if (piece.ends) text_ += '\n';
  }
  const std::string& text() const { return text_; }
  const std::string& last() const { return last_; }

 private:
  std::string prefix_;
  std::string text_;
  std::string last_;
};

HostsJob::Options job_options(const HostsPlan& plan) {
  HostsJob::Options options{
      .min_nodes = plan.min_nodes, .version = MUSTER_VERSION, .program = plan.program};
  for (const JobHost& host : plan.hosts)
    options.hosts.push_back(host.target);
  return options;
}

HostsRun::HostsRun(const HostsPlan& plan)
    : plan_(plan),
      job_(job_options(plan), now()),
      peers_(plan.hosts.size()),
      next_beat_(later(now(), kBeat)) {}

void HostsRun::block_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kEndSignals)
    ::sigaddset(&set, number);
  for (const int number : kPassedSignals)
    ::sigaddset(&set, number);
  // A signal that muster's parent ignores (nohup) stays ignored.
  for (const int number : kEndSignals) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      ::sigdelset(&set, number);
  }
  if (::sigprocmask(SIG_BLOCK, &set, &old_mask_) != 0) throw last_error("sigprocmask");
  signals_ = OwnedFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (signals_.get() < 0) throw last_error("signalfd");
  ::signal(SIGPIPE, SIG_IGN);
}

void HostsRun::start(std::size_t host) {
  Peer& peer = peers_[host];
  peer.name = plan_.hosts[host].target;
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  std::vector<std::string> words = ssh_arguments(plan_, plan_.hosts[host]);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  peer.pid = ::fork();
  if (peer.pid < 0) throw last_error("fork");
  if (peer.pid == 0)
    exec_ssh(argv.data(), in.read.get(), out.write.get(), err.write.get(), old_mask_);
  peer.pidfd = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (peer.pidfd.get() < 0) throw last_error("pidfd_open");
  peer.input = std::move(in.write);
  peer.output = std::move(out.read);
  peer.errors = std::move(err.read);
  for (const int fd : {peer.input.get(), peer.output.get(), peer.errors.get()})
    do_not_block(fd);
}

int HostsRun::run() {
  block_signals();
  for (std::size_t host = 0; host < peers_.size(); ++host)
    start(host);
  while (!finish_)
    wait_and_handle();
  if (finish_->signal != 0) {
    ::signal(finish_->signal, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
    ::raise(finish_->signal);
  }
  return finish_->status;
}

Instant HostsRun::next_deadline() const {
  Instant next = next_beat_;
  const auto also = [&](std::optional<Instant> other) {
    if (other && *other < next) next = *other;
  };
  also(job_.next_deadline());
  for (const Peer& peer : peers_) {
    also(peer.output_lines.next_deadline());
    also(peer.error_lines.next_deadline());
  }
  return next;
}

int HostsRun::poll_ms() const {
  const auto left = next_deadline() - now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
  return static_cast<int>(std::clamp<long long>(ms, 0, kBeatMs));
}

void HostsRun::wait_and_handle() {
  enum class What { Signal, End, Output, Errors, Input };
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  std::vector<std::pair<What, std::size_t>> whose = {{What::Signal, 0}};
  const auto watch = [&](const OwnedFd& fd, short events, What what, std::size_t host) {
    if (fd.get() < 0) return;
    fds.push_back({fd.get(), events, 0});
    whose.emplace_back(what, host);
  };
  for (std::size_t host = 0; host < peers_.size(); ++host) {
    const Peer& peer = peers_[host];
    watch(peer.output, POLLIN, What::Output, host);
    watch(peer.errors, POLLIN, What::Errors, host);
    if (!peer.unsent.empty()) watch(peer.input, POLLOUT, What::Input, host);
    watch(peer.pidfd, POLLIN, What::End, host);
  }
  if (::poll(fds.data(), fds.size(), poll_ms()) < 0 && errno != EINTR) throw last_error("poll");
  for (std::size_t i = 0; i < fds.size() && !finish_; ++i) {
    if (fds[i].revents == 0) continue;
    const auto [what, host] = whose[i];
    switch (what) {
      case What::Signal:
        read_signals();
        break;
      case What::Output:
        read_output(host, false);
        break;
      case What::Errors:
        read_output(host, true);
        break;
      case What::Input:
        send_unsent(peers_[host]);
        break;
      case What::End:
        reap(host);
        break;
    }
  }
  for (Peer& peer : peers_) {
    NamedLines out(peer.name);
    peer.output_lines.on_time(now(), out);
    write_console(STDOUT_FILENO, out.text());
    NamedLines err(peer.name);
    peer.error_lines.on_time(now(), err);
    write_console(STDERR_FILENO, err.text());
  }
  beat();
  if (!finish_) feed(HostsJob::TimeHasPassed{});
}

void HostsRun::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    const bool ends =
        std::find(std::begin(kEndSignals), std::end(kEndSignals), number) != std::end(kEndSignals);
    feed(HostsJob::SignalCame{.number = number, .ends = ends});
  }
}

void HostsRun::read_output(std::size_t host, bool of_stderr) {
  Peer& peer = peers_[host];
  OwnedFd& from = of_stderr ? peer.errors : peer.output;
  std::string bytes(kReadBytes, '\0');
  const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return from.reset();
  bytes.resize(static_cast<std::size_t>(got));
  if (of_stderr)
    take_lines(peer, bytes, true);
  else
    take_output(host, bytes);
}

/// Before muster's greeting there may be lines of the shell's profile, which are shown as well.
void HostsRun::take_output(std::size_t host, std::string_view bytes) {
  Peer& peer = peers_[host];
  while (!peer.greeted && !bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool is_whole = end != std::string_view::npos;
    peer.first_line += bytes.substr(0, is_whole ? end : bytes.size());
    bytes.remove_prefix(is_whole ? end + 1 : bytes.size());
    if (!is_whole && peer.first_line.size() < kMaxFirstLineBytes) return;
    const std::string line = std::exchange(peer.first_line, {});
    if (const auto version = version_of_greeting(line)) {
      peer.greeted = true;
      feed(HostsJob::Greeted{host, printable_text(*version, 64)});
    } else {
      take_lines(peer, line + "\n", false);
    }
  }
  if (!bytes.empty()) take_lines(peer, bytes, false);
}

void HostsRun::take_lines(Peer& peer, std::string_view bytes, bool of_stderr) {
  NamedLines lines(peer.name);
  (of_stderr ? peer.error_lines : peer.output_lines).feed(bytes, now(), lines);
  if (of_stderr && !lines.last().empty()) peer.last_words = lines.last();
  write_console(of_stderr ? STDERR_FILENO : STDOUT_FILENO, lines.text());
}

void HostsRun::reap(std::size_t host) {
  Peer& peer = peers_[host];
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(peer.pid), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid != peer.pid)
    return;
  peer.pidfd.reset();
  peer.input.reset();
  peer.unsent.clear();
  // What is in the pipes. Their other ends may live on in a connection that ssh shares.
  for (const bool of_stderr : {false, true}) {
    OwnedFd& from = of_stderr ? peer.errors : peer.output;
    for (pollfd ready{from.get(), POLLIN, 0}; from.get() >= 0 && ::poll(&ready, 1, 0) == 1;)
      read_output(host, of_stderr);
    from.reset();
    NamedLines rest(peer.name);
    (of_stderr ? peer.error_lines : peer.output_lines).finish(rest);
    if (of_stderr && !rest.last().empty()) peer.last_words = rest.last();
    write_console(of_stderr ? STDERR_FILENO : STDOUT_FILENO, rest.text());
  }
  const int status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  feed(HostsJob::Ended{.host = host,
                       .status = status,
                       .last_words = printable_text(peer.last_words, kMaxLastWordsBytes)});
}

void HostsRun::send_unsent(Peer& peer) {
  if (peer.input.get() < 0) return peer.unsent.clear();
  while (!peer.unsent.empty()) {
    const ssize_t sent = ::write(peer.input.get(), peer.unsent.data(), peer.unsent.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {  // ssh has closed it: its end follows.
      peer.input.reset();
      return peer.unsent.clear();
    }
    peer.unsent.erase(0, static_cast<std::size_t>(sent));
  }
  if (peer.closes) peer.input.reset();
}

void HostsRun::beat() {
  if (now() < next_beat_) return;
  next_beat_ = later(now(), kBeat);
  for (Peer& peer : peers_) {
    if (!peer.has_job || !peer.unsent.empty()) continue;
    peer.unsent = "\n";
    send_unsent(peer);
  }
}

void HostsRun::feed(const HostsJob::Event& event) {
  for (const HostsJob::Action& action : job_.step(event, now()))
    std::visit([this](const auto& one) { apply(one); }, action);
}

void HostsRun::apply(const HostsJob::SendJob& action) {
  Peer& peer = peers_[action.host];
  peer.unsent += encode_node_job(plan_.jobs[action.host]);
  peer.has_job = true;
  send_unsent(peer);
}

void HostsRun::apply(const HostsJob::SendSignal& action) {
  Peer& peer = peers_[action.host];
  peer.unsent += encode_node_signal(action.number);
  send_unsent(peer);
}

void HostsRun::apply(const HostsJob::CloseInput& action) {
  Peer& peer = peers_[action.host];
  peer.closes = true;
  send_unsent(peer);
}

void HostsRun::apply(const HostsJob::Kill& action) {
  const Peer& peer = peers_[action.host];
  if (peer.pidfd.get() >= 0) ::kill(peer.pid, SIGKILL);
}

void HostsRun::apply(const HostsJob::Say& action) {
  if (action.is_error)
    spdlog::error("{}", action.text);
  else
    spdlog::warn("{}", action.text);
}

/// Waits for a console that does not read, and goes on to say to the hosts that muster lives.
void HostsRun::write_console(int fd, std::string_view text) {
  while (!text.empty()) {
    if (!wait_for_room(fd, kBeatMs)) {
      beat();
      continue;
    }
    const ssize_t written = ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // The console is gone.
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

int run_on_hosts(const HostsPlan& plan) {
  return HostsRun(plan).run();
}

}  // namespace muster
