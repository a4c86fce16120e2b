#include "rendezvous/net/name_lookup.h"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include "rendezvous/net/bounded_work.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/store_client.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

/// The answer of the resolver. Until the look-up is done, only its thread uses it.
struct Answer {
  Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (found != nullptr) ::freeaddrinfo(found);
  }

  int code = 0;
  addrinfo* found = nullptr;
};

void ask(const std::string& name, Answer& answer) {
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  answer.code = ::getaddrinfo(name.c_str(), nullptr, &hints, &answer.found);
}

error_code to_error(int code) {
  switch (code) {
    case 0:
      return {};
    case EAI_AGAIN:
      return asio::error::host_not_found_try_again;
    case EAI_NONAME:
    case EAI_NODATA:
    case EAI_ADDRFAMILY:
      return asio::error::host_not_found;
    case EAI_MEMORY:
      return asio::error::no_memory;
    default:
      return asio::error::no_recovery;
  }
}

/// The address of the entry. Empty if its address family is unknown.
std::string address_of(const addrinfo& entry) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = ::getnameinfo(entry.ai_addr, entry.ai_addrlen, text.data(), text.size(),
                                   nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? normal_address(text.data()) : std::string();
}

NameLookup result_of(const Answer& answer) {
  NameLookup result;
  result.error = to_error(answer.code);
  if (result.error) return result;
  for (const addrinfo* entry = answer.found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_canonname != nullptr) result.canonical = entry->ai_canonname;
    const std::string address = address_of(*entry);
    auto& known = result.addresses;
    if (!address.empty() && std::find(known.begin(), known.end(), address) == known.end())
      known.push_back(address);
  }
  if (result.addresses.empty()) result.error = asio::error::no_data;
  return result;
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
  NameLookup result;
  if (const std::string address = normal_address(name); !address.empty()) {
    result.addresses.push_back(address);
    co_return result;
  }
  const auto answer = std::make_shared<Answer>();
  std::function<void()> work = [answer, name = std::move(name)] { ask(name, *answer); };
  const error_code failed = co_await run_in_time(std::move(work), limit);
  if (failed == boost::system::errc::timed_out)
    result.error = make_error_code(StoreErrc::ResolveTimedOut);
  else if (failed == boost::system::errc::resource_unavailable_try_again)
    result.error = asio::error::host_not_found_try_again;
  else if (failed)
    result.error = failed;
  else
    result = result_of(*answer);
  co_return result;
}

}  // namespace muster
