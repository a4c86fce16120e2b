#include "rendezvous/server/event_set.h"

#include <array>

#include "base/system/clock.h"

namespace muster {

const char* EventSet::open() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return "epoll_create1";
  set_.assign(fd);
  return nullptr;
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
  const Instant end = muster::now() + kTurn;
  while (poll(serve) && muster::now() < end) {
  }
}

bool EventSet::poll(const Serve& serve) {
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = ::epoll_wait(set_.native_handle(), events.data(), kEventsAtOnce, 0);
  if (count <= 0) return false;  // EINTR: the loop must handle a signal.
  serve({events.data(), static_cast<std::size_t>(count)}, muster::now());
  return count >= kBusyEvents && is_open();
}

}  // namespace muster
