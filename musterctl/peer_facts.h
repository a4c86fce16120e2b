// The facts that nodes which run the doctor together exchange about themselves and each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::ctl {

/// The facts that a node publishes about itself, once, to all others.
struct NodeFacts {
  int rank = 0;
  std::string host;
  std::string address;  // Where it listens for the others; empty: where they reach rank 0.
  std::uint16_t port = 0;
  std::string secret;    // A node that connects must send it: 32 hexadecimal digits.
  std::string variable;  // What chose the address: "GLOO_SOCKET_IFNAME=eth0"; empty: the route.
  std::string muster;    // Versions; empty: not installed, or not known.
  std::string torch;
  std::string nccl;
  bool reduces = false;   // Its Python is ready for the all-reduce.
  std::string no_reduce;  // Why it is not ready.
};

/// The stage that the test of one direction has reached.
enum class ProbeStage { Connect, Greeting, Pings, Sending, Receiving, Done };

/// The test of one direction: a node connects to another one.
struct Probe {
  ProbeStage stage = ProbeStage::Connect;
  std::string error;  // Why the test did not reach Done.
  std::string from;   // Addresses without ports. `from` is empty before there is a connection.
  std::string to;
  std::uint16_t port = 0;  // The port at `to`.
  std::string interface;   // The interface that has the address `from`.
  int interface_mtu = 0;   // 0: unknown, as for the next two.
  int path_mtu = 0;
  int segment = 0;           // The largest payload of a TCP packet, in bytes.
  double latency_ms = 0;     // There and back: the median.
  double ahead_seconds = 0;  // How far the other node's clock is ahead of this node's.
};

/// The all-reduce of a pair.
struct PairReduce {
  bool right = false;
  std::string error;
  double ms = 0;  // The time to connect and to sum.
};

/// Everything that a node knows about another one.
struct PeerFacts {
  NodeFacts node;
  std::optional<Probe> to;           // Nothing: the test did not start.
  std::optional<Probe> from;         // The other node's test to this node. Nothing: no result.
  std::optional<PairReduce> reduce;  // Nothing: it was not tried.
};

/// The number of bytes sent in each direction to find out whether large packets pass.
inline constexpr std::size_t kProbeBytes = std::size_t{256} << 10;
inline constexpr std::size_t kSecretDigits = 32;

}  // namespace muster::ctl
