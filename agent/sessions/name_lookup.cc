#include "agent/sessions/name_lookup.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/net/listener.h"

namespace muster {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);

/// Outlives the coroutine if the resolver takes too long.
struct Pending {
  explicit Pending(const asio::any_io_executor& executor) : resolver(executor), limit(executor) {}
  tcp::resolver resolver;
  asio::steady_timer limit;
  bool done = false;
  NameLookup result;
};

void take(NameLookup& result, const error_code& ec, const tcp::resolver::results_type& found) {
  if (ec) result.error = ec.message();
  for (const auto& entry : found) {
    const std::string address = unmapped(entry.endpoint().address()).to_string();
    auto& known = result.addresses;
    if (std::find(known.begin(), known.end(), address) == known.end()) known.push_back(address);
    result.canonical = entry.host_name();
  }
  if (result.addresses.empty() && result.error.empty()) result.error = "it has no address";
}

}  // namespace

std::string normal_address(const std::string& text) {
  error_code no_address;
  const auto address = asio::ip::make_address(text, no_address);
  return no_address ? std::string() : unmapped(address).to_string();
}

bool is_loopback_address(const std::string& text) {
  error_code no_address;
  const auto address = asio::ip::make_address(text, no_address);
  return !no_address && unmapped(address).is_loopback();
}

asio::awaitable<NameLookup> look_up(std::string name, Duration limit) {
  NameLookup numeric;
  if (const std::string address = normal_address(name); !address.empty()) {
    numeric.addresses.push_back(address);
    co_return numeric;
  }
  const auto executor = co_await asio::this_coro::executor;
  const auto pending = std::make_shared<Pending>(executor);
  pending->limit.expires_after(limit);
  const auto flags = tcp::resolver::canonical_name;
  pending->resolver.async_resolve(name, "", flags,
                                  [pending](const error_code& ec, const auto& found) {
                                    take(pending->result, ec, found);
                                    pending->done = true;
                                    pending->limit.cancel();
                                  });
  co_await pending->limit.async_wait(kNoThrow);
  if (pending->done) co_return std::move(pending->result);
  pending->resolver.cancel();
  NameLookup late;
  late.error = "the resolver did not answer in time";
  co_return late;
}

}  // namespace muster
