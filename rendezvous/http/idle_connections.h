// The HTTP connections of strangers that wait for a request, or whose reply is not read. If there
// are too many connections, the one that has waited longest gives its place to a new one.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <utility>

#include <boost/asio/ip/address.hpp>

namespace muster::http {

/// Used on one thread only.
class IdleConnections {
  struct Idle {
    boost::asio::ip::address peer;
    std::function<void()> close;
    bool closes = false;
  };

 public:
  /// Lists a connection while it lives. `all` must outlive it. `close` begins to close the
  /// connection. It must not destroy this object at once.
  class Place {
   public:
    Place(IdleConnections& all, const boost::asio::ip::address& peer, std::function<void()> close)
        : list_(all.list_), at_(list_.insert(list_.end(), Idle{peer, std::move(close)})) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { list_.erase(at_); }

   private:
    std::list<Idle>& list_;
    std::list<Idle>::iterator at_;
  };

  /// Closes the connection that has waited longest, of those with this address. Null: of all.
  /// Returns false if there is none.
  bool close_oldest(const boost::asio::ip::address* peer) {
    const auto oldest = std::find_if(list_.begin(), list_.end(), [peer](const Idle& idle) {
      return !idle.closes && (peer == nullptr || idle.peer == *peer);
    });
    if (oldest == list_.end()) return false;
    oldest->closes = true;
    oldest->close();
    return true;
  }

 private:
  std::list<Idle> list_;  // The connection that has waited longest comes first.
};

}  // namespace muster::http
