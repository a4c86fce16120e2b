#include "agent/sessions/own_name.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/net/name_lookup.h"
#include "base/time.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr Duration kMaxOwnName = std::chrono::seconds(1);
constexpr const char* kLocalhost = "localhost";

}  // namespace

asio::awaitable<std::string> name_for_url(std::string address) {
  const std::string literal = normal_address(address);
  if (literal.find(':') == std::string::npos) co_return address;
  const bool loopback = is_loopback_address(literal);
  std::array<char, 256> hostname{};
  if (::gethostname(hostname.data(), hostname.size() - 1) != 0) hostname[0] = '\0';
  const std::string name = loopback ? kLocalhost : hostname.data();
  if (name.empty()) co_return address;
  std::string asked = name;
  const NameLookup found = co_await look_up(std::move(asked), kMaxOwnName);
  bool leads_there = false;
  for (const std::string& answer : found.addresses) {
    // On many machines the own name means 127.0.1.1, which other programs must not announce.
    if (!loopback && is_loopback_address(answer)) co_return address;
    leads_there = leads_there || answer == literal;
  }
  co_return leads_there ? name : address;
}

}  // namespace muster
