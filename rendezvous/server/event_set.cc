#include "rendezvous/server/event_set.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/system/clock.h"

namespace muster {

const char* EventSet::open() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return "epoll_create1";
  set_.assign(fd);
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer < 0) return "timerfd_create";
  timer_ = OwnedFd(timer);
  return add(timer_.get(), EPOLLIN, kOwnTag) ? nullptr : "epoll_ctl";
}

void EventSet::close() {
  timer_.reset();
  set_.close();
}

bool EventSet::add(int fd, std::uint32_t events, std::uint64_t tag) {
  return control(EPOLL_CTL_ADD, fd, events, tag);
}

bool EventSet::change(int fd, std::uint32_t events, std::uint64_t tag) {
  return control(EPOLL_CTL_MOD, fd, events, tag);
}

bool EventSet::control(int call, int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{events, {.u64 = tag}};
  return ::epoll_ctl(set_.native_handle(), call, fd, &event) == 0;
}

void EventSet::run_turn(const Serve& serve) {
  const Instant begin = muster::now();
  const bool patient = linger_.begin_turn(begin);
  bool waiting = false;
  woken_ = false;
  for (;;) {
    const int count = wait_and_serve(waiting ? -1 : 0, serve);
    if (!is_open()) return;
    if (count < 0 || woken_) break;  // EINTR: the loop must handle a signal.
    if (now_ - begin >= Linger::kTurn) break;
    if (waiting || count >= kBusyEvents) continue;
    if (!patient) break;
    waiting = true;
    arm_timer();
  }
  if (waiting) linger_.end_waiting_turn(now_);
}

/// Returns the number of the caller's events that were handled. Negative: epoll_wait() has failed,
/// and errno is set.
int EventSet::wait_and_serve(int timeout_ms, const Serve& serve) {
  std::array<epoll_event, kEventsAtOnce> events;
  int count = ::epoll_wait(set_.native_handle(), events.data(), kEventsAtOnce, timeout_ms);
  now_ = muster::now();
  if (count <= 0) return count;
  const auto end = events.begin() + count;
  const auto own = std::find_if(events.begin(), end,
                                [](const epoll_event& event) { return event.data.u64 == kOwnTag; });
  if (own != end) {
    std::uint64_t times = 0;
    woken_ = ::read(timer_.get(), &times, sizeof times) > 0;
    std::copy(own + 1, end, own);
    if (--count == 0) return 0;
  }
  linger_.record_events(now_);
  serve({events.data(), static_cast<std::size_t>(count)}, now_);
  return count;
}

/// Sets the timer that ends a wait. To save system calls, the timer is only set again if less than
/// half of kWait is left: setting it for each wait, or letting it fire, would cost too much.
void EventSet::arm_timer() {
  if (wakes_at_ - now_ >= kWait / 2) return;
  wakes_at_ = now_ + kWait;
  const itimerspec once{{0, 0}, {0, static_cast<long>(kWait.count())}};
  ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

}  // namespace muster
