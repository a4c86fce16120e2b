#include "musterctl/peer_json.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/json_integer.h"

namespace muster::ctl {
namespace {

using PeerJson = nlohmann::json;

constexpr std::size_t kMaxText = 512;
constexpr int kMaxRank = 1 << 20;
constexpr int kMaxMtu = 1 << 24;
constexpr double kMaxMilliseconds = 1e9;
constexpr double kMaxSeconds = 1e12;

/// Reads the fields of one object. One invalid field makes the object invalid: ok() is then false.
class Fields {
 public:
  explicit Fields(const PeerJson& object) : object_(object), ok_(object.is_object()) {}

  void text(const char* name, std::string& value) {
    const PeerJson* field = find(name);
    if (field == nullptr || !field->is_string() ||
        field->get_ref<const std::string&>().size() > kMaxText)
      ok_ = false;
    else
      value = field->get<std::string>();
  }
  template <typename Integer>
  void whole(const char* name, Integer& value, std::int64_t most) {
    const PeerJson* field = find(name);
    const auto number =
        field == nullptr ? std::nullopt : integer_within<std::int64_t>(*field, 0, most);
    if (number)
      value = static_cast<Integer>(*number);
    else
      ok_ = false;
  }
  void real(const char* name, double& value, double most) {
    const PeerJson* field = find(name);
    if (field == nullptr || !field->is_number() || !(std::abs(field->get<double>()) <= most))
      ok_ = false;
    else
      value = field->get<double>();
  }
  void flag(const char* name, bool& value) {
    const PeerJson* field = find(name);
    if (field == nullptr || !field->is_boolean())
      ok_ = false;
    else
      value = field->get<bool>();
  }
  /// The field must be null, or an object that `read` accepts.
  template <typename Value>
  void optional(const char* name, std::optional<Value>& value,
                std::optional<Value> (*read)(const PeerJson&)) {
    const PeerJson* field = find(name);
    if (field == nullptr) ok_ = false;
    if (field == nullptr || field->is_null()) return;
    value = read(*field);
    if (!value) ok_ = false;
  }
  const PeerJson* find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  bool ok() const { return ok_; }

 private:
  const PeerJson& object_;
  bool ok_;
};

PeerJson parsed(std::string_view text) {
  if (text.size() > kMaxPeerJson) return nullptr;
  return PeerJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string dumped(const PeerJson& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, PeerJson::error_handler_t::replace);
}

bool is_secret(const std::string& text) {
  return text.size() == kSecretDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

PeerJson json_of(const NodeFacts& node) {
  return {{"rank", node.rank},       {"host", node.host},          {"address", node.address},
          {"port", node.port},       {"secret", node.secret},      {"variable", node.variable},
          {"muster", node.muster},   {"torch", node.torch},        {"nccl", node.nccl},
          {"reduces", node.reduces}, {"no_reduce", node.no_reduce}};
}

PeerJson json_of(const Probe& probe) {
  return {{"stage", static_cast<int>(probe.stage)},
          {"error", probe.error},
          {"from", probe.from},
          {"to", probe.to},
          {"port", probe.port},
          {"interface", probe.interface},
          {"interface_mtu", probe.interface_mtu},
          {"path_mtu", probe.path_mtu},
          {"segment", probe.segment},
          {"latency_ms", probe.latency_ms},
          {"ahead_seconds", probe.ahead_seconds}};
}

PeerJson json_of(const PairReduce& reduce) {
  return {{"right", reduce.right}, {"error", reduce.error}, {"ms", reduce.ms}};
}

template <typename Value>
PeerJson json_of(const std::optional<Value>& value) {
  return value ? json_of(*value) : PeerJson(nullptr);
}

std::optional<NodeFacts> node_of(const PeerJson& json) {
  NodeFacts node;
  Fields fields(json);
  fields.whole("rank", node.rank, kMaxRank);
  fields.text("host", node.host);
  fields.text("address", node.address);
  fields.whole("port", node.port, std::numeric_limits<std::uint16_t>::max());
  fields.text("secret", node.secret);
  fields.text("variable", node.variable);
  fields.text("muster", node.muster);
  fields.text("torch", node.torch);
  fields.text("nccl", node.nccl);
  fields.flag("reduces", node.reduces);
  fields.text("no_reduce", node.no_reduce);
  if (!fields.ok() || !is_secret(node.secret) || node.port == 0) return std::nullopt;
  return node;
}

std::optional<Probe> probe_of(const PeerJson& json) {
  Probe probe;
  int stage = 0;
  Fields fields(json);
  fields.whole("stage", stage, static_cast<int>(ProbeStage::Done));
  fields.text("error", probe.error);
  fields.text("from", probe.from);
  fields.text("to", probe.to);
  fields.whole("port", probe.port, std::numeric_limits<std::uint16_t>::max());
  fields.text("interface", probe.interface);
  fields.whole("interface_mtu", probe.interface_mtu, kMaxMtu);
  fields.whole("path_mtu", probe.path_mtu, kMaxMtu);
  fields.whole("segment", probe.segment, kMaxMtu);
  fields.real("latency_ms", probe.latency_ms, kMaxMilliseconds);
  fields.real("ahead_seconds", probe.ahead_seconds, kMaxSeconds);
  if (!fields.ok()) return std::nullopt;
  probe.stage = static_cast<ProbeStage>(stage);
  return probe;
}

std::optional<PairReduce> reduce_of(const PeerJson& json) {
  PairReduce reduce;
  Fields fields(json);
  fields.flag("right", reduce.right);
  fields.text("error", reduce.error);
  fields.real("ms", reduce.ms, kMaxMilliseconds);
  if (!fields.ok()) return std::nullopt;
  return reduce;
}

}  // namespace

std::string to_json(const NodeFacts& node) {
  return dumped(json_of(node));
}

std::string to_json(const Probe& probe) {
  return dumped(json_of(probe));
}

std::string to_json(const PeerFacts& peer) {
  return dumped({{"node", json_of(peer.node)},
                 {"to", json_of(peer.to)},
                 {"from", json_of(peer.from)},
                 {"reduce", json_of(peer.reduce)}});
}

std::optional<NodeFacts> read_node(std::string_view json) {
  return node_of(parsed(json));
}

std::optional<Probe> read_probe(std::string_view json) {
  return probe_of(parsed(json));
}

std::optional<PairReduce> read_reduce(std::string_view json) {
  return reduce_of(parsed(json));
}

std::optional<PeerFacts> read_peer(std::string_view json) {
  const PeerJson object = parsed(json);
  const Fields outer(object);
  const PeerJson* node = outer.find("node");
  if (node == nullptr) return std::nullopt;
  auto facts = node_of(*node);
  if (!facts) return std::nullopt;
  PeerFacts peer{.node = *std::move(facts)};
  Fields fields(object);
  fields.optional("to", peer.to, probe_of);
  fields.optional("from", peer.from, probe_of);
  fields.optional("reduce", peer.reduce, reduce_of);
  if (!fields.ok()) return std::nullopt;
  return peer;
}

}  // namespace muster::ctl
