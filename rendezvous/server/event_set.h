// A separate epoll set that Asio's loop watches as one descriptor.
//
// It is for servers of many small messages: a batch of events costs the loop's own system calls
// only once. Level-triggered. Reasons and measurements: docs/decisions/0003-store-loop.md.
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

namespace muster {

class EventSet {
 public:
  /// The most events that are handled at once.
  static constexpr int kEventsAtOnce = 256;
  /// The longest turn. After it, other work on the loop runs.
  static constexpr Duration kTurn = std::chrono::milliseconds(1);
  /// Handles events that were read at `now`. It may close the set, and is not called after that.
  using Serve = std::function<void(std::span<const epoll_event> events, Instant now)>;

  explicit EventSet(boost::asio::io_context& loop) : set_(loop) {}

  /// Opens the set. Returns the system call that failed, and errno is set. Null: success.
  const char* open();
  bool is_open() const { return set_.is_open(); }
  void close() { set_.close(); }

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
  /// Handles the present events, and the next ones while they come in large batches, for kTurn.
  void run_turn(const Serve& serve);
  /// Handles the present events. Returns whether more events are likely to be there.
  bool poll(const Serve& serve);

  boost::asio::any_io_executor executor() { return set_.get_executor(); }

 private:
  static constexpr int kBusyEvents = 16;

  bool control(int call, int fd, std::uint32_t events, std::uint64_t tag);

  boost::asio::posix::stream_descriptor set_;
};

}  // namespace muster
