// StoreServer: accepts connections, refuses those that exceed a limit, and pauses when no
// descriptors are left.

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

#include "rendezvous/server/store_server_impl.h"

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

void StoreServer::Impl::accept_from(std::size_t listener) {
  if (accept_again_) return;
  for (int i = 0; i < kAcceptsAtOnce && set_.is_open() && !accept_again_; ++i) {
    tcp::endpoint peer;
    socklen_t size = static_cast<socklen_t>(peer.capacity());
    OwnedFd fd(accept_connection(listeners_[listener].fd.get(), peer.data(), &size));
    if (fd.get() >= 0) {
      peer.resize(size);
      admit(std::move(fd), peer);
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return pause_accepting(errno);
    // Any other error concerns a connection that has failed before it was accepted.
  }
}

void StoreServer::Impl::admit(OwnedFd fd, const tcp::endpoint& peer) {
  apply_pending_effects();
  ++accepted_;
  const char* refused = nullptr;
  std::string_view cause;  // For the metrics.
  if (options_.admit && !options_.admit(unmapped(peer.address())))
    refused = "this address may not connect", cause = "address may not connect";
  const auto of_peer = open_of_.try_emplace(unmapped(peer.address())).first;
  if (of_peer->second >= options_.limits.connections_per_address)
    refused = "too many connections from this address: limit connections_per_address is reached",
    cause = "limit connections_per_address";
  if (open_ >= options_.limits.connections)
    refused = "too many connections: limit connections is reached", cause = "limit connections";
  if (refused != nullptr) {
    ++refused_;
    ++closed_[cause];
    if (of_peer->second == 0) open_of_.erase(of_peer);
    if (const auto left_out = shared_.log.admit(now_, refused, unmapped(peer.address())))
      spdlog::warn("store_connection_refused peer={} reason=\"{}\" connections={} left_out={}",
                   to_text(peer), refused, open_, *left_out);
    return;
  }
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const ConnectionId id{free_slots_.back()};
  Slot& slot = slot_of(id);
  auto connection = std::make_unique<Connection>(shared_, std::move(fd), id, peer);
  if (!set_.add(connection->fd(), EPOLLIN, tag_of(slot, id))) {
    const int error = errno;  // ENOSPC: the user's descriptors in all epoll sets are limited, too.
    if (of_peer->second == 0) open_of_.erase(of_peer);
    return pause_accepting(error);
  }
  free_slots_.pop_back();
  slot.connection = std::move(connection);
  slot.connection->watched = {.read = true};
  ++open_;
  ++of_peer->second;
  set_deadline(slot, &unvalidated_);
}

/// Looks at the first byte of a connection. Returns true if the client speaks TLS and the socket is
/// now the plain end, or if the connection was closed.
bool StoreServer::Impl::begin_tls(Slot& slot) {
  Connection& connection = *slot.connection;
  unsigned char first = 0;
  if (::recv(connection.fd(), &first, 1, MSG_PEEK) != 1) return false;  // on_readable() handles it.
  if (first != kTlsFirstByte) {
    connection.stay_plain();
    return false;
  }
  const ConnectionId id = connection.id();
  set_.remove(connection.fd());
  auto joined =
      options_.tls->join(connection.release_socket(), connection.peer_address().to_string());
  int error = 0;
  if (joined) {
    connection.become_secure(*std::move(joined));
    if (set_.add(connection.fd(), EPOLLIN, tag_of(slot, id))) return true;
    error = errno;
  } else {
    error = joined.error().value();
  }
  close(slot, {"TLS cannot begin: " + error_code(error, boost::system::system_category()).message(),
               "TLS cannot begin"});
  return true;
}

void StoreServer::Impl::pause_accepting(int error) {
  if (!accept_again_) {
    if (const auto left_out = shared_.log.admit(now_, "accept", {}))
      spdlog::error(
          "store_accept_failed error=\"{}\" connections={} left_out={} advice=\"new clients "
          "wait in the kernel; raise the limit of open files (`ulimit -n`, LimitNOFILE=)\"",
          error_code(error, boost::system::system_category()).message(), open_, *left_out);
    watch_listeners(0);
  }
  accept_again_ = now_ + kAcceptRetry;
  if (!timer_at_ || *accept_again_ < *timer_at_) arm_timer();
}

void StoreServer::Impl::resume_accepting() {
  accept_again_.reset();
  watch_listeners(EPOLLIN);
}

bool StoreServer::Impl::watch_listeners(std::uint32_t events) {
  bool all = true;
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    all = set_.change(listeners_[i].fd.get(), events, kListenerTag | i) && all;
  }
  return all;
}

}  // namespace muster
