// The listening sockets of a server: accepts connections, refuses those that exceed a limit, and
// pauses when no descriptors are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/result.hpp>

#include "base/net/listener.h"
#include "base/system/owned_fd.h"
#include "base/time.h"
#include "rendezvous/server/connection_shared.h"
#include "rendezvous/server/event_set.h"

namespace muster {

class Acceptor {
 public:
  /// Whether a peer may connect. Empty: every peer may.
  using Admit = std::function<bool(const boost::asio::ip::address&)>;
  /// Takes a new connection, and calls on_opened(). Returns 0, or the errno if the event set cannot
  /// watch it.
  using Accepted = std::function<int(OwnedFd, const boost::asio::ip::tcp::endpoint& peer)>;
  /// In the event set, the listening sockets have this bit in their tags, and their number.
  static constexpr std::uint64_t kListenerTag = std::uint64_t{1} << 63;

  /// `shared` and `set` must outlive the acceptor.
  Acceptor(ConnectionShared& shared, EventSet& set, Admit admit, Accepted accepted)
      : shared_(shared), set_(set), admit_(std::move(admit)), accepted_(std::move(accepted)) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Takes over the sockets, and watches them. The set must be open.
  boost::system::result<void, ListenError> begin(std::vector<Listener> listeners);
  const std::vector<Listener>& listeners() const { return listeners_; }
  void close() { listeners_.clear(); }

  /// Accepts the connections that wait at the socket with this tag.
  void accept_from(std::uint64_t tag);
  /// A connection from this address is open from now on.
  void on_opened(const boost::asio::ip::address& peer);
  /// It is closed: its descriptor is free again.
  void on_closed(const boost::asio::ip::address& peer);

  /// When accepting goes on. Nothing: it is not paused.
  std::optional<Instant> paused_until() const { return paused_until_; }
  /// Goes on if the pause is over.
  void on_time();

  std::size_t open() const { return open_; }                        // Connections now.
  std::uint64_t total_accepted() const { return total_accepted_; }  // With the refused ones.
  std::uint64_t total_refused() const { return total_refused_; }

 private:
  struct Objection;  // Why a peer is refused.

  void take(OwnedFd fd, const boost::asio::ip::tcp::endpoint& peer);
  Objection objection_to(const boost::asio::ip::address& peer) const;
  void pause(int error);
  void resume();
  void watch(std::uint32_t events);

  ConnectionShared& shared_;
  EventSet& set_;
  Admit admit_;
  Accepted accepted_;
  std::vector<Listener> listeners_;
  std::optional<Instant> paused_until_;                      // No descriptors are left.
  std::map<boost::asio::ip::address, std::size_t> open_of_;  // The connections of each address.
  std::size_t open_ = 0;
  std::uint64_t total_accepted_ = 0;
  std::uint64_t total_refused_ = 0;
};

}  // namespace muster
