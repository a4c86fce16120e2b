// The descriptors that the log thread waits for, in an epoll set of its own.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/system/owned_fd.h"
#include "base/time.h"

namespace muster {

class InterestSet {
 public:
  static Result<InterestSet> open();

  /// Changes the events that the set watches for from `current` to `wanted`. Without wanted events
  /// the descriptor leaves the set, which otherwise reports a hang-up again and again. Returns
  /// false on failure, and errno is set: regular files cannot be watched.
  bool set(int fd, std::uint64_t id, std::uint32_t& current, std::uint32_t wanted);
  /// Waits for at most `limit`. Returns the events of up to `events_max` descriptors; the id of
  /// each is in data.u64. They are valid until the next call.
  std::span<const epoll_event> wait(Duration limit, std::size_t events_max);

 private:
  explicit InterestSet(OwnedFd epoll) : epoll_(std::move(epoll)) {}

  OwnedFd epoll_;
  std::vector<epoll_event> events_;
};

}  // namespace muster
