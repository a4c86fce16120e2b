// The facts of nodes as JSON, and back. Pure; what is read may have been written by anybody.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "musterctl/peer_facts.h"

namespace muster::ctl {

/// Longer texts are not read at all.
inline constexpr std::size_t kMaxPeerJson = std::size_t{16} << 10;

std::string to_json(const NodeFacts& node);
std::string to_json(const Probe& probe);
std::string to_json(const PeerFacts& peer);

/// Nothing if a field is missing, of another kind, out of its range or too long. Whatever texts
/// they have may still contain control characters.
std::optional<NodeFacts> read_node(std::string_view json);
std::optional<Probe> read_probe(std::string_view json);
std::optional<PeerFacts> read_peer(std::string_view json);
/// What the Python program of the all-reduce answers.
std::optional<PairReduce> read_reduce(std::string_view json);

}  // namespace muster::ctl
