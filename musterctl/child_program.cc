#include "musterctl/child_program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

namespace muster::ctl {
namespace {

boost::system::error_code last_errno() {
  return {errno, boost::system::system_category()};
}

struct PipeEnds {
  OwnedFd read;
  OwnedFd write;
};

bool make_pipe(PipeEnds& ends) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return false;
  ends.read = OwnedFd(fds[0]);
  ends.write = OwnedFd(fds[1]);
  return true;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const std::string& word : words)
    result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs between fork and exec: system calls only.
[[noreturn]] void exec_child(char** argv, char** environment, int in, int out, int error) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
    ::signal(number, SIG_DFL);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && ::dup2(in, STDIN_FILENO) >= 0 &&
      ::dup2(out, STDOUT_FILENO) >= 0)
    ::execve(argv[0], argv, environment);
  const int why = errno;
  if (::write(error, &why, sizeof why) < 0) ::_exit(126);  // The error cannot be reported.
  ::_exit(127);
}

}  // namespace

Result<ChildProgram> ChildProgram::start(const std::vector<std::string>& argv,
                                         const std::vector<std::string>& environment, Stdin in) {
  PipeEnds output;
  PipeEnds input;
  PipeEnds failure;
  if (!make_pipe(output) || !make_pipe(failure)) return last_errno();
  if (in == Stdin::Null)
    input.read = OwnedFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  else if (!make_pipe(input))
    return last_errno();
  std::vector<char*> words = pointers(argv);
  std::vector<char*> variables = pointers(environment);
  const pid_t pid = ::fork();
  if (pid < 0) return last_errno();
  if (pid == 0)
    exec_child(words.data(), variables.data(), input.read.get(), output.write.get(),
               failure.write.get());
  ChildProgram child;
  child.pid_ = pid;
  child.output = std::move(output.read);
  child.input = std::move(input.write);
  failure.write.reset();
  int why = 0;
  if (::read(failure.read.get(), &why, sizeof why) == sizeof why) {
    errno = why;
    return last_errno();
  }
  return child;
}

ChildProgram::ChildProgram(ChildProgram&& other) noexcept
    : output(std::move(other.output)),
      input(std::move(other.input)),
      pid_(std::exchange(other.pid_, -1)) {}

ChildProgram::~ChildProgram() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  wait();
}

std::string ChildProgram::wait() {
  int status = 0;
  pid_t ended = -1;
  do
    ended = ::waitpid(pid_, &status, 0);
  while (ended < 0 && errno == EINTR);
  pid_ = -1;
  if (ended < 0) return "an unknown status";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) == 0) return {};
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one)
    variables.emplace_back(*one);
  return variables;
}

}  // namespace muster::ctl
