#include "base/system/refused_call.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <boost/system/error_code.hpp>

#include "base/system/owned_fd.h"

namespace muster {
namespace {

bool is_refused(long result) {
  return result < 0 && (errno == EPERM || errno == ENOSYS);
}

/// The calls of a loop: its waits, timers and signals. Null: none is refused.
const char* refused_by_loops() {
  sigset_t none;
  ::sigemptyset(&none);
  // Without it, signals come to threads that pass them on, without an end.
  if (is_refused(::sigprocmask(SIG_BLOCK, &none, nullptr))) return "rt_sigprocmask";
  struct sigaction action {};
  if (is_refused(::sigaction(SIGCHLD, nullptr, &action))) return "rt_sigaction";
  const OwnedFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (is_refused(epoll.get())) return "epoll_create1";
  const OwnedFd event(::eventfd(0, EFD_CLOEXEC));
  if (is_refused(event.get())) return "eventfd2";
  epoll_event wanted{};
  if (is_refused(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wanted))) return "epoll_ctl";
  if (is_refused(::epoll_wait(epoll.get(), &wanted, 1, 0))) return "epoll_wait";
  const OwnedFd signals(::signalfd(-1, &none, SFD_CLOEXEC));
  if (is_refused(signals.get())) return "signalfd4";
  const OwnedFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (is_refused(timer.get())) return "timerfd_create";
  const itimerspec never{};
  if (is_refused(::timerfd_settime(timer.get(), 0, &never, nullptr))) return "timerfd_settime";
  std::array<int, 2> ends{-1, -1};
  if (is_refused(::pipe2(ends.data(), O_CLOEXEC))) return "pipe2";
  const OwnedFd reader(ends[0]);
  const OwnedFd writer(ends[1]);
  // Asio makes descriptors non-blocking with it, and the log thread asks how much is in a pipe.
  int number = 0;
  if (is_refused(::ioctl(reader.get(), FIONREAD, &number)) ||
      is_refused(::ioctl(reader.get(), FIONBIO, &number)))
    return "ioctl";
  return nullptr;
}

/// The calls between muster's processes, and of TLS, which has a pair for each connection.
const char* refused_by_pairs() {
  std::array<int, 2> ends{-1, -1};
  if (is_refused(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data())))
    return "socketpair";
  const OwnedFd one(ends[0]);
  const OwnedFd other(ends[1]);
  std::array<char, 2> bytes{};
  iovec part{bytes.data(), 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Two bytes, which both ways of reading find.
  if (is_refused(::sendmsg(one.get(), &message, MSG_DONTWAIT))) return "sendmsg";
  if (is_refused(::send(one.get(), bytes.data(), 1, MSG_DONTWAIT))) return "sendto";
  if (is_refused(::recvmsg(other.get(), &message, MSG_DONTWAIT))) return "recvmsg";
  if (is_refused(::recv(other.get(), bytes.data(), 1, MSG_DONTWAIT))) return "recvfrom";
  return nullptr;
}

/// The calls of a server, on a local socket that the kernel names: for a port, a service manager's
/// rules (SocketBindDeny=) may answer with EPERM, too, and allow the port that is meant.
const char* refused_by_sockets() {
  const OwnedFd local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (is_refused(local.get())) return "socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  if (is_refused(::bind(local.get(), name, sizeof address.sun_family))) return "bind";
  if (is_refused(::listen(local.get(), 1))) return "listen";
  socklen_t size = sizeof address;
  if (is_refused(::getsockname(local.get(), name, &size))) return "getsockname";
  return nullptr;
}

}  // namespace

std::optional<RefusedCall> refused_call() {
  for (const auto find : {refused_by_loops, refused_by_pairs, refused_by_sockets})
    if (const char* name = find(); name != nullptr) return RefusedCall{name, errno};
  // The C library starts threads with clone3 and, only after ENOSYS, with clone. Without arguments
  // the call itself fails with EINVAL.
  constexpr long kClone3 = 435;  // SYS_clone3, on every architecture.
  if (::syscall(kClone3, nullptr, 0) == 0 || errno != EPERM) return std::nullopt;
  return RefusedCall{"clone3", EPERM, "start threads",
                     "A container's seccomp profile must allow this system call, or answer it with "
                     "ENOSYS"};
}

std::string RefusedCall::text() const {
  utsname system{};
  ::uname(&system);
  const boost::system::error_code code(error, boost::system::system_category());
  return "cannot " + what + " on this system (Linux " + system.release + "): " + name + ": " +
         code.message() + ". " + advice;
}

}  // namespace muster
