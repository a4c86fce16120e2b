// Tests the connection from this node to another one, and answers the tests of others.
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/result.hpp>

#include "base/net/listener.h"
#include "musterctl/peer_facts.h"

namespace muster::ctl {

inline constexpr int kConnectSeconds = 5;
inline constexpr int kPingSeconds = 5;
inline constexpr int kDataSeconds = 10;  // For each of the two directions.
/// The limit for one test, whatever the other node does.
inline constexpr int kProbeSeconds = kConnectSeconds + kPingSeconds + 2 * kDataSeconds;

struct ProbeTarget {
  std::string address;  // Numeric.
  std::uint16_t port = 0;
  std::string secret;
  int rank = 0;
  int own_rank = 0;
  std::string own_address;  // The source of the connection; empty: the route chooses.
};
boost::asio::awaitable<Probe> probe_peer(boost::asio::any_io_executor executor, ProbeTarget target);

/// A node tests one direction at a time: more connections at once than this are strangers'.
inline constexpr int kMaxProbesAtOnce = 16;

/// Answers every client of `listener` that knows the secret, until the loop is stopped.
void answer_probes(const boost::asio::any_io_executor& executor, Listener listener,
                   std::string secret, int own_rank);

}  // namespace muster::ctl
