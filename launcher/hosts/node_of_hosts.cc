#include "launcher/hosts/node_of_hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable_text.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"
#include "base/system/standard_output.h"
#include "launcher/hosts/node_message.h"

namespace muster {
namespace {

constexpr int kPatienceMs = 300'000;
constexpr std::size_t kMaxReadBytes = std::size_t{64} << 10;

int complain(const std::string& text) {
  std::fprintf(stderr, "muster: %s\n", text.c_str());
  return EXIT_FAILURE;
}

/// The lines that come over ssh.
class Lines {
 public:
  /// Reads once. False: the stream has ended.
  bool read() {
    std::string bytes(kMaxReadBytes, '\0');
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) return false;
    text_.append(bytes, 0, static_cast<std::size_t>(got));
    return text_.size() <= kMaxNodeJobBytes;
  }
  std::optional<std::string> next() {
    const std::size_t end = text_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

 private:
  std::string text_;
};

/// The first line. Nothing: the stream has ended, as another host could not begin.
std::optional<std::string> await_job(Lines& lines) {
  for (;;) {
    if (auto line = lines.next()) return line;
    pollfd readable{STDIN_FILENO, POLLIN, 0};
    const int found = ::poll(&readable, 1, kPatienceMs);
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0 || !lines.read()) return std::nullopt;
  }
}

/// Starts muster in its folder and with its variables. -1, with errno.
pid_t start_muster(const NodeJob& job) {
  std::vector<char*> argv;
  argv.reserve(job.arguments.size() + 1);
  for (const std::string& word : job.arguments)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const auto& [name, value] : job.environment)
    ::setenv(name.c_str(), value.c_str(), 1);
  const OwnedFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  // The job ends in order if this process is killed.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
  if (nothing.get() >= 0) ::dup2(nothing.get(), STDIN_FILENO);
  ::execv("/proc/self/exe", argv.data());
  std::fprintf(stderr, "muster: it cannot be started again: %s\n", std::strerror(errno));
  ::_exit(EXIT_FAILURE);
}

/// Passes signals on until muster has ended.
void serve(Lines& lines, pid_t muster, int pidfd, int max_silence_s) {
  const Duration max_silence = std::chrono::seconds(max_silence_s);
  bool is_connected = true;
  Instant heard = now();
  const auto lose = [&](const std::string& why) {
    is_connected = false;
    std::fprintf(stderr, "muster: %s: ending the job here\n", why.c_str());
    ::kill(muster, SIGTERM);
  };
  for (;;) {
    pollfd fds[] = {{pidfd, POLLIN, 0}, {is_connected ? STDIN_FILENO : -1, POLLIN, 0}};
    const auto left = heard + max_silence - now();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
    const int wait_ms =
        is_connected ? static_cast<int>(std::clamp<long long>(ms, 0, kPatienceMs)) : -1;
    if (::poll(fds, 2, wait_ms) < 0 && errno != EINTR) return;
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) {
      heard = now();
      if (!lines.read()) lose("the connection to the muster that started this one has ended");
      while (const auto line = lines.next())
        if (const auto number = decode_node_signal(*line)) ::kill(muster, *number);
    } else if (is_connected && now() >= heard + max_silence) {
      lose("nothing was heard for " + std::to_string(max_silence_s) +
           " s of the muster that started this one");
    }
  }
}

}  // namespace

int run_node_of_hosts() {
  ::signal(SIGPIPE, SIG_IGN);
  if (write_to_stdout(greeting(MUSTER_VERSION))) return EXIT_FAILURE;
  Lines lines;
  const auto line = await_job(lines);
  if (!line) return EXIT_FAILURE;
  const auto job = decode_node_job(*line);
  if (!job) return complain(job.error().message);
  if (job->arguments.empty()) return complain("the job that came over ssh has no arguments");
  if (::chdir(job->folder.c_str()) != 0)
    return complain("cannot go to the folder " + printable_text(job->folder) + ": " +
                    std::strerror(errno) +
                    "; --hosts copies no files, so each host needs the same folder");
  ::signal(SIGPIPE, SIG_DFL);  // For muster, which inherits it.
  const pid_t muster = start_muster(*job);
  if (muster < 0) return complain(std::string("cannot start a process: ") + std::strerror(errno));
  ::signal(SIGPIPE, SIG_IGN);
  const OwnedFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, muster, 0)));
  if (pidfd.get() < 0) return complain(std::string("pidfd_open: ") + std::strerror(errno));
  serve(lines, muster, pidfd.get(), job->max_silence_s);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(muster), &info, WEXITED) != 0)
    if (errno != EINTR) return EXIT_FAILURE;
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

}  // namespace muster
