#include "base/net/connect_any.h"

#include <tuple>
#include <variant>

#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/net/connect_errors.h"
#include "base/net/no_throw.h"
#include "base/net/unmapped.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using asio::ip::tcp;
using boost::system::error_code;

std::vector<tcp::endpoint> endpoints_of(const std::vector<std::string>& addresses,
                                        std::uint16_t port) {
  std::vector<tcp::endpoint> endpoints;
  for (const std::string& text : addresses) {
    error_code not_numeric;
    const auto address = asio::ip::make_address(text, not_numeric);
    if (!not_numeric) endpoints.emplace_back(address, port);
  }
  return endpoints;
}

asio::awaitable<error_code> connect_any(tcp::socket& socket, std::vector<tcp::endpoint> endpoints,
                                        Instant deadline, error_code timed_out) {
  if (endpoints.empty()) co_return asio::error::host_not_found;
  ConnectErrors errors;
  asio::steady_timer limit(socket.get_executor());
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    error_code ignored;
    socket.close(ignored);
    const auto left = static_cast<Duration::rep>(endpoints.size() - i);
    limit.expires_after((deadline - now()) / left);
    const auto done =
        co_await (socket.async_connect(endpoints[i], kNoThrow) || limit.async_wait(kNoThrow));
    const auto* connected = std::get_if<0>(&done);
    const error_code ec = connected != nullptr ? std::get<0>(*connected) : timed_out;
    if (!ec) co_return ec;
    errors.add(ec, unmapped(endpoints[i].address()));
  }
  co_return errors.result();
}

}  // namespace muster
