#include "base/net/connect_errors.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include <boost/asio/error.hpp>
#include <boost/system/errc.hpp>

#include "base/net/name_lookup.h"
#include "base/net/own_addresses.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

bool is_unreachable(const error_code& error) {
  using namespace boost::system::errc;
  return error == network_unreachable || error == address_not_available ||
         error == address_family_not_supported;
}

/// The higher number says more about why there is no server.
int priority_of(const error_code& error) {
  if (error == boost::system::errc::connection_refused) return 1;
  return is_unreachable(error) ? 2 : 3;
}

bool reaches_others(const asio::ip::address& own) {
  return !own.is_loopback() && !(own.is_v6() && own.to_v6().is_link_local());
}

}  // namespace

bool never_got_there(const error_code& error) {
  const auto& category = error.category();
  return is_unreachable(error) || error == make_error_code(NameErrc::TimedOut) ||
         category == asio::error::get_netdb_category() ||
         category == asio::error::get_addrinfo_category();
}

bool machine_has_family(bool v6) {
  static std::array<std::atomic<bool>, 2> seen{};
  const std::vector<asio::ip::address> own = interface_addresses();
  for (const bool family : {false, true})
    if (std::any_of(own.begin(), own.end(), [&](const asio::ip::address& address) {
          return address.is_v6() == family && reaches_others(address);
        }))
      seen[family ? 1 : 0] = true;
  return seen[v6 ? 1 : 0];
}

void ConnectErrors::add(const error_code& error, const asio::ip::address& address) {
  const bool left_out =
      is_unreachable(error) && reaches_others(address) && !machine_has_family(address.is_v6());
  const int priority = left_out ? 0 : priority_of(error);
  if (priority < priority_) return;
  priority_ = priority;
  result_ = error;
}

void ConnectErrors::add(const error_code& error) {
  const int priority = priority_of(error);
  if (priority < priority_) return;
  priority_ = priority;
  result_ = error;
}

}  // namespace muster
