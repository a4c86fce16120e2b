// One node tests its way to another one, and answers those that test theirs to it.
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/result.hpp>

#include "musterctl/peer_facts.h"
#include "rendezvous/net/listener.h"

namespace muster::ctl {

inline constexpr int kConnectSeconds = 5;
inline constexpr int kPingSeconds = 5;
inline constexpr int kDataSeconds = 10;  // Of each of the two ways.
/// No test takes longer, whatever the other node does.
inline constexpr int kProbeSeconds = kConnectSeconds + kPingSeconds + 2 * kDataSeconds;

struct ProbeTarget {
  std::string address;  // Numeric.
  std::uint16_t port = 0;
  std::string secret;
  int rank = 0;
  int own_rank = 0;
  std::string own_address;  // The connection begins at this one; empty: the route chooses.
};
boost::asio::awaitable<Probe> probe_peer(boost::asio::any_io_executor executor, ProbeTarget target);

/// Nobody tests several ways at a time: more connections at once than this are strangers'.
inline constexpr int kMaxProbesAtOnce = 16;

/// Answers on `listener` all who know the secret, until the loop is stopped.
void answer_probes(const boost::asio::any_io_executor& executor, Listener listener,
                   std::string secret, int own_rank);

}  // namespace muster::ctl
