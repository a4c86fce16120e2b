#include "rendezvous/server/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/net/unmapped.h"

namespace muster {

using boost::asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kAcceptsAtOnce = 256;  // After so many, existing connections are served first.
constexpr Duration kAcceptRetry = std::chrono::milliseconds(200);

/// A container may refuse accept4: accept has no flags, but otherwise does the same.
int accept_connection(int listener, sockaddr* peer, socklen_t* size) {
  const int fd = ::accept4(listener, peer, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0 || (errno != EPERM && errno != ENOSYS)) return fd;
  const int plain = ::accept(listener, peer, size);
  if (plain < 0) return plain;
  ::fcntl(plain, F_SETFD, FD_CLOEXEC);
  ::fcntl(plain, F_SETFL, ::fcntl(plain, F_GETFL) | O_NONBLOCK);
  return plain;
}

}  // namespace

/// Both texts are static.
struct Acceptor::Objection {
  const char* reason = nullptr;  // Null: it is not refused.
  std::string_view cause = {};   // For the metrics.
};

boost::system::result<void, ListenError> Acceptor::begin(std::vector<Listener> listeners) {
  listeners_ = std::move(listeners);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (set_.add(listeners_[i].fd.get(), EPOLLIN, kListenerTag | i)) continue;
    const error_code why(errno, boost::system::system_category());  // to_string() changes errno.
    const tcp::endpoint& at = listeners_[i].endpoint;
    return ListenError{"epoll_ctl", at.address().to_string(), at.port(), why};
  }
  return {};
}

void Acceptor::accept_from(std::uint64_t tag) {
  const auto listener = static_cast<std::size_t>(tag & ~kListenerTag);
  if (paused_until_) return;
  for (int i = 0; i < kAcceptsAtOnce && set_.is_open() && !paused_until_; ++i) {
    tcp::endpoint peer;
    socklen_t size = static_cast<socklen_t>(peer.capacity());
    OwnedFd fd(accept_connection(listeners_[listener].fd.get(), peer.data(), &size));
    if (fd.get() >= 0) {
      peer.resize(size);
      take(std::move(fd), peer);
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return pause(errno);
    // Any other error concerns a connection that has failed before it was accepted.
  }
}

Acceptor::Objection Acceptor::objection_to(const boost::asio::ip::address& peer) const {
  const auto of_peer = open_of_.find(peer);
  if (open_ >= shared_.connections.connections)
    return {"too many connections: limit connections is reached", "limit connections"};
  if ((of_peer == open_of_.end() ? 0 : of_peer->second) >=
      shared_.connections.connections_per_address)
    return {"too many connections from this address: limit connections_per_address is reached",
            "limit connections_per_address"};
  return {};
}

void Acceptor::take(OwnedFd fd, const tcp::endpoint& peer) {
  ++total_accepted_;
  const boost::asio::ip::address address = unmapped(peer.address());
  const bool admitted = !admit_ || admit_(address);
  Objection objection = objection_to(address);
  if (!admitted && objection.reason == nullptr)
    objection = {"this address may not connect", "address may not connect"};
  if (objection.reason != nullptr) {
    ++total_refused_;
    ++shared_.closed[objection.cause];
    if (const auto left_out = shared_.log.admit(shared_.now, objection.reason, address))
      spdlog::warn("store_connection_refused peer={} reason=\"{}\" connections={} left_out={}",
                   to_text(peer), objection.reason, open_, *left_out);
    return;
  }
  // ENOSPC is possible: the user's descriptors in all epoll sets are limited, too.
  if (const int error = accepted_(std::move(fd), peer); error != 0) pause(error);
}

void Acceptor::on_opened(const boost::asio::ip::address& peer) {
  ++open_of_[peer];
  ++open_;
}

void Acceptor::on_closed(const boost::asio::ip::address& peer) {
  if (const auto of_peer = open_of_.find(peer); --of_peer->second == 0) open_of_.erase(of_peer);
  --open_;
  if (paused_until_) resume();
}

void Acceptor::pause(int error) {
  if (!paused_until_) {
    if (const auto left_out = shared_.log.admit(shared_.now, "accept", {}))
      spdlog::error(
          "store_accept_failed error=\"{}\" connections={} left_out={} advice=\"new clients "
          "wait in the kernel; raise the limit of open files (`ulimit -n`, LimitNOFILE=)\"",
          error_code(error, boost::system::system_category()).message(), open_, *left_out);
    watch(0);
  }
  paused_until_ = shared_.now + kAcceptRetry;
}

void Acceptor::on_time() {
  if (paused_until_ && *paused_until_ <= shared_.now) resume();
}

void Acceptor::resume() {
  paused_until_.reset();
  watch(EPOLLIN);
}

void Acceptor::watch(std::uint32_t events) {
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    set_.change(listeners_[i].fd.get(), events, kListenerTag | i);
}

}  // namespace muster
