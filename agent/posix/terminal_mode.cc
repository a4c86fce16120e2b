#include "agent/posix/terminal_mode.h"

#include <unistd.h>

#include <cstring>
#include <string_view>

namespace muster {
namespace {

/// The parts of a mode that a program changes: the rest are speeds.
bool is_same(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && std::memcmp(a.c_cc, b.c_cc, sizeof a.c_cc) == 0;
}

}  // namespace

TerminalMode::TerminalMode() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (terminal_ < 0 && ::tcgetattr(fd, &mode_) == 0) terminal_ = fd;
  }
}

bool TerminalMode::restore() const {
  termios present{};
  // In the background the shell owns the mode, and a change would stop this process.
  if (terminal_ < 0 || ::tcgetpgrp(terminal_) != ::getpgrp() ||
      ::tcgetattr(terminal_, &present) != 0 || is_same(present, mode_) ||
      ::tcsetattr(terminal_, TCSANOW, &mode_) != 0)
    return false;
  constexpr std::string_view kShowCursor = "\033[?25h";  // Programs that use raw mode hide it.
  [[maybe_unused]] const ssize_t written =
      ::write(terminal_, kShowCursor.data(), kShowCursor.size());
  return true;
}

}  // namespace muster
