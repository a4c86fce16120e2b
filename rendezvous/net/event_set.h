// An epoll set of one's own inside Asio's loop, which watches it as one descriptor.
//
// For who serves many small messages: a batch of events costs the loop's own calls once, and while
// one client sends one request after the other they are not paid at all. Level-triggered. Why, and
// with what result: docs/decisions/0003-store-loop.md.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "rendezvous/core/time.h"
#include "rendezvous/net/linger.h"
#include "rendezvous/net/listener.h"

namespace muster {

class EventSet {
 public:
  /// The caller's tags are below it.
  static constexpr std::uint64_t kOwnTag = ~std::uint64_t{0};
  /// The longest that a turn keeps the loop waiting when nothing comes.
  static constexpr Duration kWait = std::chrono::milliseconds(4);
  /// Serves events that were taken at `now`. May close the set, and is not called again then.
  using Serve = std::function<void(std::span<const epoll_event> events, Instant now)>;

  explicit EventSet(boost::asio::io_context& loop) : set_(loop) {}

  /// The system call that failed, errno says why; null: it is open.
  const char* open();
  bool is_open() const { return set_.is_open(); }
  void close();

  /// False: errno says why.
  bool add(int fd, std::uint32_t events, std::uint64_t tag);
  bool change(int fd, std::uint32_t events, std::uint64_t tag);
  /// For a descriptor that somebody else has from now on; closing one removes it by itself.
  void remove(int fd) { control(EPOLL_CTL_DEL, fd, 0, 0); }

  /// `ready` is called from the loop when a turn is due, or with an error when the set is closed.
  template <typename Ready>
  void async_wait(Ready ready) {
    set_.async_wait(boost::asio::posix::descriptor_base::wait_read, std::move(ready));
  }
  /// Has the events served that are there, and while they come one soon after the other the next
  /// ones, too. Ends with the first that are served after Linger::kTurn, or once none came for
  /// kWait.
  void take_turn(const Serve& serve);
  /// One look, without waiting; whether the next one is likely to find something.
  bool look(const Serve& serve) { return take(0, serve) >= kBusyEvents && is_open(); }

  /// From within Serve: the turn ends with it, because the caller has work of its own to do.
  void end_turn() { woken_ = true; }

  boost::asio::any_io_executor executor() { return set_.get_executor(); }

 private:
  static constexpr int kBusyEvents = 16;

  int take(int timeout_ms, const Serve& serve);
  bool control(int call, int fd, std::uint32_t events, std::uint64_t tag);
  void be_woken();

  boost::asio::posix::stream_descriptor set_;
  OwnedFd timer_;  // In the set: ends a wait in which nothing comes.
  Instant wakes_at_{};
  bool woken_ = false;
  Linger linger_;
  Instant now_{};
};

}  // namespace muster
