// A separate epoll set that Asio's loop watches as one descriptor.
//
// It is for servers of many small messages. A batch of events costs the loop's own system calls
// only once, and while one client sends one request after the other, they are not needed at all.
// Level-triggered. Reasons and measurements: docs/decisions/0003-store-loop.md.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/net/listener.h"
#include "base/time.h"
#include "rendezvous/server/linger.h"

namespace muster {

class EventSet {
 public:
  /// The tag of the set's own timer. The caller's tags are smaller.
  static constexpr std::uint64_t kOwnTag = ~std::uint64_t{0};
  /// The most events that are handled at once.
  static constexpr int kEventsAtOnce = 256;
  /// The longest time that a turn waits for an event while it keeps the loop.
  static constexpr Duration kWait = std::chrono::milliseconds(4);
  /// Handles events that were read at `now`. It may close the set, and is not called after that.
  using Serve = std::function<void(std::span<const epoll_event> events, Instant now)>;

  explicit EventSet(boost::asio::io_context& loop) : set_(loop) {}

  /// Opens the set. Returns the system call that failed, and errno is set. Null: success.
  const char* open();
  bool is_open() const { return set_.is_open(); }
  void close();

  /// Returns false on failure, and errno is set.
  bool add(int fd, std::uint32_t events, std::uint64_t tag);
  bool change(int fd, std::uint32_t events, std::uint64_t tag);
  /// For a descriptor that another owner uses from now on. Closing a descriptor removes it, too.
  void remove(int fd) { control(EPOLL_CTL_DEL, fd, 0, 0); }

  /// `ready` is called from the loop when a turn is due, or with an error when the set is closed.
  template <typename Ready>
  void async_wait(Ready ready) {
    set_.async_wait(boost::asio::posix::descriptor_base::wait_read, std::move(ready));
  }
  /// Handles the present events and, while events come at short intervals, also the next ones. The
  /// turn ends with the first events that are handled after Linger::kTurn, or when none came for
  /// kWait.
  void run_turn(const Serve& serve);
  /// Handles the present events without waiting. Returns whether more events are likely to be
  /// there.
  bool poll(const Serve& serve) { return wait_and_serve(0, serve) >= kBusyEvents && is_open(); }

  /// Called by Serve if the loop must do other work: the turn ends after this batch.
  void end_turn() { woken_ = true; }

  boost::asio::any_io_executor executor() { return set_.get_executor(); }

 private:
  static constexpr int kBusyEvents = 16;

  int wait_and_serve(int timeout_ms, const Serve& serve);
  bool control(int call, int fd, std::uint32_t events, std::uint64_t tag);
  void arm_timer();

  boost::asio::posix::stream_descriptor set_;
  OwnedFd timer_;  // A timer in the set. It ends a wait during which no event comes.
  Instant wakes_at_{};
  bool woken_ = false;
  Linger linger_;
  Instant now_{};
};

}  // namespace muster
