// Connects to one of the addresses of a name within a deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/time.h"

namespace muster {

/// Addresses that are not numeric are left out.
std::vector<boost::asio::ip::tcp::endpoint> endpoints_of(const std::vector<std::string>& addresses,
                                                         std::uint16_t port);

/// Tries the addresses in their order, until one accepts. Each gets its share of the time that is
/// left, because the first one may not answer at all: then its error is `timed_out`. If none
/// accepts, the error is that of ConnectErrors.
boost::asio::awaitable<boost::system::error_code> connect_any(
    boost::asio::ip::tcp::socket& socket, std::vector<boost::asio::ip::tcp::endpoint> endpoints,
    Instant deadline, boost::system::error_code timed_out);

}  // namespace muster
