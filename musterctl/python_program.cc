#include "musterctl/python_program.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "musterctl/child_program.h"

namespace muster::ctl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxOutputBytes = 4096;
// The exit statuses of a shell whose exec has failed, see POSIX.
constexpr const char* kNotExecutable = "exit status 126";
constexpr const char* kNotFound = "exit status 127";

std::string python_name() {
  const char* const chosen = std::getenv("PYTHON_EXEC");
  return chosen != nullptr && *chosen != '\0' ? std::string("PYTHON_EXEC=") + chosen : "python3";
}

// Reads until the program closes its output. Nothing: it takes longer than until `deadline`.
std::optional<std::string> output_until(int fd, Clock::time_point deadline) {
  std::string text;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd readable{fd, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&readable, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    std::array<char, 512> piece{};
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    if (text.size() < kMaxOutputBytes) text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

std::string problem_of(const std::string& end) {
  const std::string name = python_name();
  if (end == kNotFound)
    return name == "python3" ? "no python3 on PATH, and no PYTHON_EXEC" : name + " is not there";
  if (end == kNotExecutable) return name + " cannot be executed";
  return name + " has ended with " + end;
}

}  // namespace

// A shell looks the program up. `timeout` of coreutils would be simpler, but small images lack it.
PythonAnswer run_python(const std::string& program, std::chrono::seconds limit) {
  const std::vector<std::string> argv{
      "/bin/sh", "-c", "exec \"${PYTHON_EXEC:-python3}\" -c \"$0\" 2>/dev/null", program};
  auto child = ChildProgram::start(argv, own_environment(), ChildProgram::Stdin::Null);
  if (!child) return {{}, "/bin/sh cannot be executed: " + child.error().message()};
  auto output = output_until(child->output.get(), Clock::now() + limit);
  if (!output)
    return {{}, python_name() + " has not answered within " + std::to_string(limit.count()) + " s"};
  if (!output->empty()) return {std::move(*output), {}};
  const std::string end = child->wait();
  return {{}, end.empty() ? python_name() + " has printed nothing" : problem_of(end)};
}

}  // namespace muster::ctl
