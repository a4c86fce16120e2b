#include "agent/sessions/endpoint_check.h"

#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/address_scope.h"
#include "base/net/name_lookup.h"
#include "base/net/own_addresses.h"
#include "base/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// Enough for several name servers that are each tried twice.
constexpr Duration kMaxOwnNameLookup = std::chrono::seconds(60);

/// The addresses of all interfaces. An endpoint may name a link-local one with or without its
/// scope.
std::vector<std::string> interface_texts() {
  std::vector<std::string> texts;
  for (const asio::ip::address& address : interface_addresses()) {
    texts.push_back(address.to_string());
    if (std::string bare = without_scope(texts.back()); bare != texts.back())
      texts.push_back(std::move(bare));
  }
  return texts;
}

/// This machine's host name. Empty if the kernel does not tell it.
std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

/// The look-up of this machine's own name. Shared with the look-up task, which may outlive the
/// checker.
struct EndpointChecker::OwnName {
  std::string name;
  NameLookup found;
  bool lookup_running = false;
  std::optional<asio::steady_timer> waiter;  // Cancelled when the answer comes.
};

EndpointChecker::EndpointChecker(std::string endpoint_host)
    : endpoint_host_(std::move(endpoint_host)), own_(std::make_shared<OwnName>()) {}

asio::awaitable<void> EndpointChecker::look_up_own_name(std::shared_ptr<OwnName> own) {
  std::string name = own->name;
  own->found = co_await look_up(std::move(name), kMaxOwnNameLookup);
  own->lookup_running = false;
  if (auto& waiter = own->waiter) waiter->cancel();
}

asio::awaitable<EndpointCheck> EndpointChecker::check(Duration limit, Duration own_name_limit) {
  // Copies: the checker may be destroyed before an answer comes.
  const std::string endpoint_host = endpoint_host_;
  const auto own = own_;
  EndpointCheck answer;
  HostFacts& facts = answer.facts;
  facts.endpoint_literal = normal_address(endpoint_host);
  facts.endpoint_is_loopback = is_loopback_address(endpoint_host);
  facts.hostname = hostname();
  facts.interface_addresses = interface_texts();
  answer.match = match_host(endpoint_host, facts);
  if (answer.match == HostMatch::Here) co_return answer;  // No name needs to be looked up.
  std::string name = endpoint_host;
  NameLookup endpoint = co_await look_up(std::move(name), limit);
  if (endpoint.error) answer.lookup_error = endpoint.error.message();
  facts.endpoint_addresses = std::move(endpoint.addresses);
  answer.match = match_host(endpoint_host, facts);
  // The own name is looked up only if no interface has the endpoint's address: torchrun compares
  // this name.
  if (answer.match != HostMatch::Elsewhere) co_return answer;

  const auto executor = co_await asio::this_coro::executor;
  own->name = facts.hostname;
  asio::steady_timer& waiter = own->waiter.emplace(executor);
  waiter.expires_after(own_name_limit);
  if (!std::exchange(own->lookup_running, true))
    spawn_task(executor, "own_name", look_up_own_name(own));
  if (own->lookup_running) co_await waiter.async_wait(asio::as_tuple(asio::use_awaitable));
  facts.own_addresses = own->found.addresses;
  facts.own_canonical = own->found.canonical;
  answer.match = match_host(endpoint_host, facts);
  co_return answer;
}

}  // namespace muster
