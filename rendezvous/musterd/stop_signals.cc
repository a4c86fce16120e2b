#include "rendezvous/musterd/stop_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include <boost/system/system_error.hpp>

#include "base/from_errno.h"
#include "base/system/wait_for_room.h"

namespace muster {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT};

sigset_t signal_set() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : kSignals)
    ::sigaddset(&set, number);
  return set;
}

int open_signals() {
  const sigset_t set = signal_set();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const int number : kSignals)
    ::signal(number, SIG_DFL);  // An ignored signal would not come.
  const int fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) throw boost::system::system_error(from_errno(errno), "signalfd");
  return fd;
}

// A signal handler.
void end_now(int /*number*/) {
  constexpr std::string_view kText =
      "musterd: its end took too long (does the storage of --state-dir answer?): it ends now, "
      "without its last write\n";
  write_last_words(kText, 0);
  ::_exit(1);
}

void limit_the_end() {
  sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::signal(SIGALRM, end_now);
  ::alarm(StopSignals::kEndWithin);
}

}  // namespace

StopSignals::StopSignals(boost::asio::io_context& loop, std::function<void()> stop)
    : signals_(loop, open_signals()) {
  signals_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, stop = std::move(stop)](const boost::system::error_code& ec) {
                        if (ec) return;
                        signalfd_siginfo info{};
                        [[maybe_unused]] const ssize_t n =
                            ::read(signals_.native_handle(), &info, sizeof info);
                        limit_the_end();
                        stop();
                      });
}

}  // namespace muster
