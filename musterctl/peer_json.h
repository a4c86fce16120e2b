// Converts the facts of nodes to JSON and back. Pure. The input of the read_... functions is not
// trusted.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "musterctl/peer_facts.h"

namespace muster::ctl {

/// Longer texts are refused.
inline constexpr std::size_t kMaxPeerJson = std::size_t{16} << 10;

std::string to_json(const NodeFacts& node);
std::string to_json(const Probe& probe);
std::string to_json(const PeerFacts& peer);

/// Nothing if a field is missing, of another kind, out of its range or too long. The texts of the
/// result may still contain control characters.
std::optional<NodeFacts> read_node(std::string_view json);
std::optional<Probe> read_probe(std::string_view json);
std::optional<PeerFacts> read_peer(std::string_view json);
/// An answer of all_reduce.py.
std::optional<PairReduce> read_reduce(std::string_view json);

}  // namespace muster::ctl
