#include "base/system/pseudo_terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>
#include <utility>

#include "base/from_errno.h"

namespace muster {
namespace {

/// Above 2: the standard streams may have been closed.
OwnedFd above_standard(int fd) {
  if (fd < 0 || fd > 2) return OwnedFd(fd);
  const OwnedFd low(fd);
  return OwnedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

Result<PseudoTerminal> open_pseudo_terminal(int console) {
  termios settings{};
  if (::tcgetattr(console, &settings) != 0) return from_errno(errno);
  PseudoTerminal made;
  made.reader = above_standard(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!made.reader.is_open()) return from_errno(errno);
  if (::unlockpt(made.reader.get()) != 0) return from_errno(errno);
  // By the descriptor, not by its name: /dev/pts may be another one here.
  made.worker =
      above_standard(::ioctl(made.reader.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!made.worker.is_open()) return from_errno(errno);
  settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ISIG);  // Nobody types here.
  if (::tcsetattr(made.worker.get(), TCSANOW, &settings) != 0) return from_errno(errno);
  copy_terminal_size(console, made.reader.get());
  if (::fcntl(made.reader.get(), F_SETFL, O_NONBLOCK) != 0) return from_errno(errno);
  return made;
}

void copy_terminal_size(int console, int reader) {
  winsize size{};
  if (::ioctl(console, TIOCGWINSZ, &size) == 0) ::ioctl(reader, TIOCSWINSZ, &size);
}

}  // namespace muster
