#include "rendezvous/server/client_socket.h"

#include <sys/socket.h>

#include <utility>

namespace muster {

boost::asio::ip::tcp::endpoint ClientSocket::local() const {
  if (secured_ && secured_->local.port() != 0) return secured_->local;
  boost::asio::ip::tcp::endpoint local;
  socklen_t size = static_cast<socklen_t>(local.capacity());
  if (::getsockname(fd_.get(), local.data(), &size) < 0) return {};
  local.resize(size);
  return local;
}

OwnedFd ClientSocket::release() {
  secured_ = std::make_unique<Secured>(Secured{local(), nullptr});
  return std::exchange(fd_, OwnedFd());
}

void ClientSocket::become_secure(TlsConnection secure) {
  fd_ = std::move(secure.plain);
  secured_->status = std::move(secure.status);
  kind_ = Kind::Secure;
}

std::vector<std::string> ClientSocket::peer_names() const {
  return is_secure() ? secured_->status->peer_names() : std::vector<std::string>();
}

}  // namespace muster
