#include "agent/sessions/rendezvous_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/net/name_lookup.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// Several name servers, each tried twice.
constexpr Duration kOwnNameLookupMost = std::chrono::seconds(60);

/// Of interfaces that are up; without the scope of link-local ones.
std::vector<std::string> interface_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    const void* bytes = nullptr;
    if (family == AF_INET)
      bytes = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    else if (family == AF_INET6)
      bytes = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    else
      continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
    addresses.push_back(normal_address(text.data()));
  }
  return addresses;
}

/// Empty: the kernel does not say it.
std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

/// Shared with the look-up, which may take longer than we are there.
struct HostFinder::OwnName {
  std::string name;
  NameLookup found;
  bool asking = false;
  std::optional<asio::steady_timer> waiting;  // Cancelled by the answer.
};

HostFinder::HostFinder(std::string endpoint_host)
    : endpoint_host_(std::move(endpoint_host)), own_(std::make_shared<OwnName>()) {}

asio::awaitable<void> HostFinder::ask(std::shared_ptr<OwnName> own) {
  std::string name = own->name;
  own->found = co_await look_up(std::move(name), kOwnNameLookupMost);
  own->asking = false;
  if (auto& waiting = own->waiting) waiting->cancel();
}

asio::awaitable<HostAnswer> HostFinder::find(Duration limit, Duration own_limit) {
  // Copies: the finder may be gone when an answer comes.
  const std::string endpoint_host = endpoint_host_;
  const auto own = own_;
  HostAnswer answer;
  HostFacts& facts = answer.facts;
  facts.endpoint_literal = normal_address(endpoint_host);
  facts.endpoint_is_loopback = is_loopback_address(endpoint_host);
  facts.hostname = hostname();
  facts.interface_addresses = interface_addresses();
  answer.match = match_host(endpoint_host, facts);
  if (answer.match == HostMatch::Here) co_return answer;  // Needs no names.
  std::string name = endpoint_host;
  NameLookup endpoint = co_await look_up(std::move(name), limit);
  if (endpoint.error) answer.endpoint_trouble = endpoint.error.message();
  facts.endpoint_addresses = std::move(endpoint.addresses);
  answer.match = match_host(endpoint_host, facts);
  // What torchrun would say of this machine's name matters only where the interfaces are silent.
  if (answer.match != HostMatch::Elsewhere) co_return answer;

  const auto executor = co_await asio::this_coro::executor;
  own->name = facts.hostname;
  asio::steady_timer& waiting = own->waiting.emplace(executor);
  waiting.expires_after(own_limit);
  if (!std::exchange(own->asking, true)) spawn_task(executor, "own_name", ask(own));
  if (own->asking) co_await waiting.async_wait(asio::as_tuple(asio::use_awaitable));
  facts.own_addresses = own->found.addresses;
  facts.own_canonical = own->found.canonical;
  answer.match = match_host(endpoint_host, facts);
  co_return answer;
}

}  // namespace muster
