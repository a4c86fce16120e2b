// What nodes that run the doctor at the same time say of themselves and of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::ctl {

/// A node says this of itself to all others, once.
struct NodeFacts {
  int rank = 0;
  std::string host;
  std::string address;  // Where it listens for the others; empty: at the address of rank 0.
  std::uint16_t port = 0;
  std::string secret;    // What those say that may connect: 32 hexadecimal digits.
  std::string variable;  // "GLOO_SOCKET_IFNAME=eth0": why it is this address. Empty: the route.
  std::string muster;    // Versions. Empty: it has none, or does not know.
  std::string torch;
  std::string nccl;
  bool reduces = false;   // Its Python is ready for the all-reduce.
  std::string no_reduce;  // Why it is not.
};

/// How far a test of one direction came.
enum class ProbeStage { Connect, Greeting, Pings, Sending, Receiving, Done };

/// One direction: a node connects to another one.
struct Probe {
  ProbeStage stage = ProbeStage::Connect;
  std::string error;  // Why it did not come to Done.
  std::string from;   // Addresses without ports. `from` is empty before there is a connection.
  std::string to;
  std::uint16_t port = 0;  // Of `to`.
  std::string interface;   // That has `from`.
  int interface_mtu = 0;   // 0: unknown, as for the next two.
  int path_mtu = 0;
  int segment = 0;           // What TCP puts into one packet at most.
  double latency_ms = 0;     // There and back: the median.
  double ahead_seconds = 0;  // By how much the other clock is ahead of ours.
};

/// The all-reduce of a pair.
struct PairReduce {
  bool right = false;
  std::string error;
  double ms = 0;  // To meet and to sum.
};

/// All that a node learns about another one.
struct PeerFacts {
  NodeFacts node;
  std::optional<Probe> to;           // Nothing: it did not come to the test.
  std::optional<Probe> from;         // What it says of its way to us. Nothing: it has not said.
  std::optional<PairReduce> reduce;  // Nothing: it was not tried.
};

/// What is sent in each direction to find out whether large packets pass.
inline constexpr std::size_t kProbeBytes = std::size_t{256} << 10;
inline constexpr std::size_t kSecretDigits = 32;

}  // namespace muster::ctl
