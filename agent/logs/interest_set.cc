#include "agent/logs/interest_set.h"

#include <cerrno>
#include <chrono>

#include "base/from_errno.h"

namespace muster {

Result<InterestSet> InterestSet::open() {
  OwnedFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return from_errno(errno);
  return InterestSet(std::move(epoll));
}

bool InterestSet::set(int fd, std::uint64_t id, std::uint32_t& current, std::uint32_t wanted) {
  if (current == wanted) return true;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = id;
  const int operation = wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_ADD;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) return false;
  current = wanted;
  return true;
}

std::span<const epoll_event> InterestSet::wait(Duration limit, std::size_t events_max) {
  events_.resize(events_max);
  const auto limit_ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  const int count = ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                 static_cast<int>(limit_ms));
  return std::span(events_).first(count > 0 ? static_cast<std::size_t>(count) : 0);
}

}  // namespace muster
