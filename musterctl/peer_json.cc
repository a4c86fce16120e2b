#include "musterctl/peer_json.h"

#include <limits>

#include "base/bounded_json.h"
#include "base/json_fields.h"

namespace muster::ctl {
namespace {

constexpr std::size_t kMaxText = 512;
constexpr int kMaxRank = 1 << 20;
constexpr int kMaxPort = std::numeric_limits<std::uint16_t>::max();
constexpr int kMaxMtu = 1 << 24;
constexpr double kMaxMilliseconds = 1e9;
constexpr double kMaxSeconds = 1e12;
constexpr JsonLimits kPeerLimits{.values = kMaxPeerJson, .depth = 32};

}  // namespace

template <typename V>
void fields(V& v, Of<V, NodeFacts>& node) {
  v.text("address", node.address, kMaxText);
  v.text("host", node.host, kMaxText);
  v.text("muster", node.muster, kMaxText);
  v.text("nccl", node.nccl, kMaxText);
  v.text("no_reduce", node.no_reduce, kMaxText);
  v.number("port", node.port, 1);
  v.number("rank", node.rank, 0, kMaxRank);
  v.flag("reduces", node.reduces);
  v.hex("secret", node.secret, kSecretDigits);
  v.text("torch", node.torch, kMaxText);
  v.text("variable", node.variable, kMaxText);
}

template <typename V>
void fields(V& v, Of<V, Probe>& probe) {
  v.real("ahead_seconds", probe.ahead_seconds, kMaxSeconds);
  v.text("error", probe.error, kMaxText);
  v.text("from", probe.from, kMaxText);
  v.text("interface", probe.interface, kMaxText);
  v.number("interface_mtu", probe.interface_mtu, 0, kMaxMtu);
  v.real("latency_ms", probe.latency_ms, kMaxMilliseconds);
  v.number("path_mtu", probe.path_mtu, 0, kMaxMtu);
  v.number("port", probe.port, 0, kMaxPort);
  v.number("segment", probe.segment, 0, kMaxMtu);
  auto stage = static_cast<int>(probe.stage);
  v.number("stage", stage, 0, static_cast<int>(ProbeStage::Done));
  if constexpr (V::kReads) probe.stage = static_cast<ProbeStage>(stage);
  v.text("to", probe.to, kMaxText);
}

template <typename V>
void fields(V& v, Of<V, PairReduce>& reduce) {
  v.text("error", reduce.error, kMaxText);
  v.real("ms", reduce.ms, kMaxMilliseconds);
  v.flag("right", reduce.right);
}

template <typename V>
void fields(V& v, Of<V, PeerFacts>& peer) {
  v.object_or_null("from", peer.from);
  v.object("node", peer.node);
  v.object_or_null("reduce", peer.reduce);
  v.object_or_null("to", peer.to);
}

namespace {

template <typename Facts>
std::string written(const Facts& facts) {
  return fields_text(facts, JsonWriter::Characters::Ascii);
}

template <typename Facts>
std::optional<Facts> read(std::string_view text) {
  if (text.size() > kMaxPeerJson) return std::nullopt;
  JsonReader::Json json;
  if (parse_bounded_json(text, kPeerLimits, json) || !json.is_object()) return std::nullopt;
  Facts facts;
  if (read_fields(json, facts)) return std::nullopt;
  return facts;
}

}  // namespace

std::string to_json(const NodeFacts& node) {
  return written(node);
}

std::string to_json(const Probe& probe) {
  return written(probe);
}

std::string to_json(const PeerFacts& peer) {
  return written(peer);
}

std::optional<NodeFacts> read_node(std::string_view json) {
  return read<NodeFacts>(json);
}

std::optional<Probe> read_probe(std::string_view json) {
  return read<Probe>(json);
}

std::optional<PairReduce> read_reduce(std::string_view json) {
  return read<PairReduce>(json);
}

std::optional<PeerFacts> read_peer(std::string_view json) {
  return read<PeerFacts>(json);
}

}  // namespace muster::ctl
