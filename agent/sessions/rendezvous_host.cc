#include "agent/sessions/rendezvous_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "agent/sessions/name_lookup.h"

namespace muster {

namespace asio = boost::asio;

namespace {

std::string errno_text(const char* call) {
  return std::string(call) + ": " + std::generic_category().message(errno);
}

/// Of interfaces that are up; without the scope of link-local ones.
std::vector<std::string> interface_addresses(std::string& trouble) {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    trouble = errno_text("getifaddrs");
    return addresses;
  }
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

std::string hostname(std::string& trouble) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) return name.data();
  trouble = errno_text("gethostname");
  return {};
}

}  // namespace

asio::awaitable<HostAnswer> find_host(std::string endpoint_host, Duration limit) {
  HostAnswer answer;
  HostFacts& facts = answer.facts;
  facts.endpoint_literal = normal_address(endpoint_host);
  facts.endpoint_is_loopback = is_loopback_address(endpoint_host);
  facts.hostname = hostname(answer.trouble);
  facts.interface_addresses = interface_addresses(answer.trouble);
  answer.match = match_host(endpoint_host, facts);
  if (answer.match == HostMatch::Here) co_return answer;  // Needs no names.

  std::string name = endpoint_host;
  NameLookup endpoint = co_await look_up(std::move(name), limit / 2);
  if (endpoint.addresses.empty()) answer.trouble = endpoint_host + ": " + endpoint.error;
  facts.endpoint_addresses = std::move(endpoint.addresses);
  std::string own_name = facts.hostname;
  NameLookup own = co_await look_up(std::move(own_name), limit / 2);
  if (own.addresses.empty()) answer.trouble = facts.hostname + ": " + own.error;
  facts.own_addresses = std::move(own.addresses);
  facts.own_canonical = std::move(own.canonical);
  answer.match = match_host(endpoint_host, facts);
  co_return answer;
}

}  // namespace muster
