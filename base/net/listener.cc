#include "base/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "base/address_scope.h"
#include "base/limit_advice.h"
#include "base/net/unmapped.h"

namespace muster {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// How often bind_all() is tried with port 0. The port that the kernel chooses for the first address
// may be in use at another address.
constexpr int kPortTries = 20;

error_code last_error() {
  return {errno, boost::system::system_category()};
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);  // Best effort: the options are optional.
}

// With these values, a peer whose machine has disappeared is detected after about two minutes.
void set_keep_alive(int fd) {
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

boost::system::result<Listener, ListenError> finish(OwnedFd fd, ListenError error) {
  const auto failed = [&error](const char* call) {
    error.call = call;
    error.code = last_error();
    return error;
  };
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_keep_alive(fd.get());
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) < 0) return failed("fcntl");
  if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) < 0) return failed("fcntl");
  // -1: the longest backlog that the kernel allows (net.core.somaxconn).
  if (::listen(fd.get(), -1) < 0) return failed("listen");
  tcp::endpoint endpoint;
  socklen_t size = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(fd.get(), endpoint.data(), &size) < 0) return failed("getsockname");
  const auto family = endpoint.data()->sa_family;
  if (family != AF_INET && family != AF_INET6) {
    errno = EAFNOSUPPORT;
    return failed("getsockname");
  }
  endpoint.resize(size);
  return Listener{std::move(fd), endpoint};
}

enum class Stack { One, Dual };

boost::system::result<Listener, ListenError> bind_one(const tcp::endpoint& endpoint, Stack stack) {
  ListenError error{"socket", endpoint.address().to_string(), endpoint.port(), {}};
  const bool v6 = endpoint.address().is_v6();
  OwnedFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) {
    error.code = last_error();
    return error;
  }
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (v6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, stack == Stack::Dual ? 0 : 1);
  if (::bind(fd.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) < 0) {
    error.call = "bind";
    error.code = last_error();
    return error;
  }
  return finish(std::move(fd), std::move(error));
}

Listeners listen_everywhere(std::uint16_t port) {
  std::vector<Listener> listeners;
  auto both = bind_one({asio::ip::address_v6::any(), port}, Stack::Dual);
  if (!both) {
    const int code = both.error().code.value();
    // IPv4 alone is used only if the host has no IPv6. Other errors are reported.
    if (code != EAFNOSUPPORT && code != EADDRNOTAVAIL) return both.error();
    both = bind_one({asio::ip::address_v4::any(), port}, Stack::One);
    if (!both) return both.error();
  }
  listeners.push_back(std::move(*both));
  return listeners;
}

/// Binds all addresses at one port. If `port` is 0: at the port that the kernel chooses for the
/// first address.
Listeners bind_all(const std::vector<asio::ip::address>& addresses, std::uint16_t port) {
  // "::" alone means every interface. Together with IPv4 addresses, it means IPv6 only.
  const bool any_v4 =
      std::any_of(addresses.begin(), addresses.end(), [](auto& a) { return a.is_v4(); });
  std::vector<Listener> listeners;
  for (const asio::ip::address& address : addresses) {
    const bool dual = address.is_v6() && address.is_unspecified() && !any_v4;
    auto one = bind_one({address, port}, dual ? Stack::Dual : Stack::One);
    if (!one) return one.error();
    port = one->endpoint.port();
    listeners.push_back(std::move(*one));
  }
  return listeners;
}

}  // namespace

std::string ListenError::what() const {
  const bool v6 = address.find(':') != std::string::npos;
  const std::string where = fmt::format(fmt::runtime(v6 ? "[{}]:{}" : "{}:{}"), address, port);
  std::string advice;
  if (code.value() == EADDRINUSE)
    advice = fmt::format(
        "; another program has the port: `ss -ltnp 'sport = :{}'` names it, "
        "or take another port (0 picks a free one)",
        port);
  else if (code.value() == EACCES)
    advice = "; ports below 1024 need a privilege: take a port from 1024 on";
  else if (code.value() == EADDRNOTAVAIL)
    advice = "; no interface of this host has the address: `ip address` lists those that are there";
  else
    advice = limit_advice(code.value());
  if (call == "pthread_create")
    return fmt::format("cannot start a thread for it: {}{}", code.message(),
                       start_limit_advice(code.value()));
  if (call == "event loop")
    return fmt::format("cannot make an event loop for it: {}{}", code.message(), advice);
  if (call == "parse")
    return fmt::format("cannot listen on {}: not a numeric IPv4 or IPv6 address", address);
  return fmt::format("cannot listen on {}: {}: {}{}", where, call, code.message(), advice);
}

std::string to_text(const tcp::endpoint& endpoint) {
  const auto address = unmapped(endpoint.address());
  return fmt::format(fmt::runtime(address.is_v6() ? "[{}]:{}" : "{}:{}"), address.to_string(),
                     endpoint.port());
}

std::string end_text(const tcp::endpoint& endpoint) {
  if (endpoint.port() == 0 || endpoint.address().is_unspecified()) return {};
  const std::string address = without_scope(unmapped(endpoint.address()).to_string());
  return address + ":" + std::to_string(endpoint.port());
}

Listeners listen_on(const std::vector<std::string>& addresses, std::uint16_t port) {
  if (addresses.empty()) return listen_everywhere(port);
  std::vector<asio::ip::address> parsed;
  for (const std::string& text : addresses) {
    error_code ec;
    parsed.push_back(asio::ip::make_address(text, ec));
    if (ec) return ListenError{"parse", text, port, ec};
  }
  Listeners listeners = bind_all(parsed, port);
  // Another program may have the port that the kernel chose for the first address at another
  // address.
  for (int tries = 1; port == 0 && tries < kPortTries && !listeners &&
                      listeners.error().code.value() == EADDRINUSE;
       ++tries)
    listeners = bind_all(parsed, port);
  return listeners;
}

Listeners take_over(const std::vector<int>& descriptors) {
  std::vector<OwnedFd> owned;
  owned.reserve(descriptors.size());
  for (const int fd : descriptors)
    owned.emplace_back(fd);
  std::vector<Listener> listeners;
  for (OwnedFd& fd : owned) {
    ListenError error{"", fmt::format("descriptor {}", fd.get()), 0, {}};
    auto one = finish(std::move(fd), std::move(error));
    if (!one) return one.error();
    listeners.push_back(std::move(*one));
  }
  return listeners;
}

}  // namespace muster
