#include "rendezvous/wire/native_codec.h"

#include <algorithm>
#include <array>

#include <boost/endian/conversion.hpp>

#include "rendezvous/core/check.h"
#include "rendezvous/wire/native_json.h"
#include "rendezvous/wire/state_codec.h"
#include "rendezvous/wire/utf8.h"

namespace muster {

namespace {

using native::Fields;
using native::Json;

constexpr std::size_t kMaxVersionBytes = 256;
constexpr std::size_t kMaxInstanceBytes = 64;
constexpr std::array<std::string_view, 5> kCauses = {"workers_failed", "node_lost", "node_left",
                                                     "node_joined", "requested"};
constexpr std::array<std::string_view, 6> kWhys = {"version", "settings",       "name_taken",
                                                   "closed",  "too_many_nodes", "timed_out"};
constexpr std::array<std::string_view, 3> kPolicies = {"now", "at-restart", "never"};

// By their place in the variant.
constexpr std::array<std::string_view, std::variant_size_v<NativeRequest>> kRequestTypes = {
    "hello", "join", "keep_alive", "leave", "workers_failed", "restart", "store_ready", "finished"};
constexpr std::array<std::string_view, std::variant_size_v<NativeMessage>> kMessageTypes = {
    "welcome",       "refused",    "waiting",   "prepare_store", "round",
    "restart_round", "run_closed", "run_ended", "join_refused",  "not_a_member"};

// --- writing -------------------------------------------------------------------------------------

// A byte that is not UTF-8 becomes a character of three: dump() replaces it.
std::string cut(const std::string& text) {
  std::string start = text.substr(0, kMaxNativeTextBytes);
  for (int dropped = 0; dropped < 4 && start.size() + 4 > kMaxNativeTextBytes; ++dropped) {
    if (is_utf8(start)) return start;
    start.pop_back();  // Perhaps only the last character is cut in two.
  }
  if (!is_utf8(start)) start.resize(std::min(start.size(), kMaxNativeTextBytes / 3));
  return start;
}

Json write(const NodeName& name) {
  return {{"addr", name.addr}, {"pid", name.pid}, {"local_id", name.local_id}};
}

Json write(const RunSettings& run) {
  return {{"min_nodes", run.min_nodes},
          {"max_nodes", run.max_nodes},
          {"max_restarts", run.max_restarts},
          {"scale_policy", kPolicies[static_cast<std::size_t>(run.scale_policy)]},
          {"join_timeout_ns", run.join_timeout.count()},
          {"last_call_timeout_ns", run.last_call_timeout.count()}};
}

struct FieldWriter {
  Json& out;

  void operator()(const NativeHello& hello) const {
    out["protocol_version"] = hello.protocol_version;
    out["muster_version"] = hello.muster_version;
    out["run_id"] = hello.run_id;
  }
  void operator()(const NodeJoined& joined) const {
    out["name"] = write(joined.name);
    if (!joined.instance.empty()) out["instance"] = joined.instance;
    out["local_world_size"] = joined.local_world_size;
    out["role"] = joined.role;
    out["run"] = write(joined.run);
    out["protocol_version"] = joined.protocol_version;
    out["muster_version"] = joined.muster_version;
    out["last_round"] = joined.last_round;
    if (joined.life != 0) out["life"] = joined.life;
    if (joined.preferred_rank) out["preferred_rank"] = *joined.preferred_rank;
    out["spare"] = joined.spare;
    out["hosts_rendezvous"] = joined.hosts_rendezvous;
  }
  void operator()(const KeptAlive&) const {}
  void operator()(const NodeLeft&) const {}
  void operator()(const WorkersFailed& failed) const {
    out["round"] = failed.round;
    out["what"] = cut(failed.what);
  }
  void operator()(const RestartRequested& requested) const { out["what"] = cut(requested.what); }
  void operator()(const StoreReady& ready) const {
    out["round"] = ready.round;
    out["addr"] = ready.addr;
    out["port"] = ready.port;
  }
  void operator()(const NodeFinished& finished) const {
    out["round"] = finished.round;
    out["succeeded"] = finished.succeeded;
    out["what"] = cut(finished.what);
  }

  void operator()(const NativeWelcome& welcome) const {
    out["protocol_version"] = welcome.protocol_version;
    out["muster_version"] = welcome.muster_version;
    out["peer_address"] = welcome.peer_address;
    if (welcome.lease) out["lease_ns"] = welcome.lease->count();
  }
  void operator()(const NativeRefused& refused) const { out["text"] = cut(refused.text); }
  void operator()(const NativeWaiting& waiting) const { out["text"] = cut(waiting.text); }
  void operator()(const PrepareStore& prepare) const { out["round"] = prepare.round; }
  void operator()(const RoundComplete& round) const {
    out["round"] = round.round;
    out["group_rank"] = round.group_rank.value;
    out["group_world_size"] = round.group_world_size;
    out["restart_count"] = round.restart_count;
    if (round.workers)
      out["workers"] = {{"base_global_rank", round.workers->base_global_rank.value},
                        {"world_size", round.workers->world_size},
                        {"base_role_rank", round.workers->base_role_rank},
                        {"role_world_size", round.workers->role_world_size}};
    if (round.store) out["store"] = {{"addr", round.store->addr}, {"port", round.store->port}};
    if (round.life != 0) out["life"] = round.life;
  }
  void operator()(const RestartRound& restart) const {
    out["round"] = restart.round;
    out["cause"] = kCauses[static_cast<std::size_t>(restart.cause)];
    out["who"] = write(restart.who);
    out["what"] = cut(restart.what);
    if (restart.life != 0) out["life"] = restart.life;
  }
  void operator()(const RunClosed&) const {}
  void operator()(const RunEnded& ended) const {
    out["succeeded"] = ended.succeeded;
    if (ended.who) out["who"] = write(*ended.who);
    out["why"] = cut(ended.why);
  }
  void operator()(const JoinRefused& refused) const {
    out["why"] = kWhys[static_cast<std::size_t>(refused.why)];
    out["text"] = cut(refused.text);
  }
  void operator()(const NotAMember&) const {}
};

template <typename Variant>
void append_message(const Variant& message, std::string_view type, std::string& out) {
  Json object = {{"type", type}};
  std::visit(FieldWriter{object}, message);
  // Texts may come from anywhere: what is not UTF-8 in them is replaced.
  const std::string json = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  MUSTER_CHECK(json.size() <= kMaxNativeBytes);
  std::array<unsigned char, kNativeLengthBytes> length;
  boost::endian::store_little_u64(length.data(), json.size());
  out.append(reinterpret_cast<const char*>(length.data()), length.size());
  out.append(json);
}

// --- reading -------------------------------------------------------------------------------------

NodeName read_name(Fields fields) {
  return {.addr = fields.text("addr", kMaxAddressBytes),
          .pid = fields.number<std::int64_t>("pid"),
          .local_id = fields.number<std::int64_t>("local_id")};
}

RunSettings read_run(Fields fields) {
  return {.min_nodes = fields.number<int>("min_nodes", 1),
          .max_nodes = fields.number<int>("max_nodes", 1),
          .max_restarts = fields.number<int>("max_restarts"),
          .scale_policy = fields.one_of<ScalePolicy>("scale_policy", kPolicies),
          .join_timeout = Duration(fields.number<std::int64_t>("join_timeout_ns")),
          .last_call_timeout = Duration(fields.number<std::int64_t>("last_call_timeout_ns"))};
}

// Of another protocol nothing more is known than which one it is.
void read(Fields& fields, NativeHello& hello) {
  hello.protocol_version = fields.number<int>("protocol_version");
  hello.muster_version = fields.text("muster_version", kMaxVersionBytes);
  if (hello.protocol_version != kNativeProtocolVersion) return;
  hello.run_id = fields.text("run_id", kMaxAddressBytes);
}
void read(Fields& fields, NodeJoined& joined) {
  joined.name = read_name(fields.object("name"));
  if (fields.has("instance")) joined.instance = fields.text("instance", kMaxInstanceBytes);
  joined.local_world_size = fields.number<int>("local_world_size");
  joined.role = fields.text("role", kMaxAddressBytes);
  joined.run = read_run(fields.object("run"));
  joined.protocol_version = fields.number<int>("protocol_version");
  joined.muster_version = fields.text("muster_version", kMaxVersionBytes);
  joined.last_round = fields.number<std::int64_t>("last_round", -1);
  if (fields.has("life")) joined.life = fields.number<std::int64_t>("life", 1);
  if (fields.has("preferred_rank")) joined.preferred_rank = fields.number<int>("preferred_rank");
  joined.spare = fields.boolean("spare");
  joined.hosts_rendezvous = fields.boolean("hosts_rendezvous");
  if (joined.run.min_nodes > joined.run.max_nodes) fields.fail("run.max_nodes", "below min_nodes");
}
void read(Fields&, KeptAlive&) {}
void read(Fields&, NodeLeft&) {}
void read(Fields& fields, WorkersFailed& failed) {
  failed.round = fields.number<std::int64_t>("round");
  failed.what = fields.text("what");
}
void read(Fields& fields, RestartRequested& requested) {
  requested.what = fields.text("what");
}
void read(Fields& fields, StoreReady& ready) {
  ready.round = fields.number<std::int64_t>("round");
  ready.addr = fields.text("addr", kMaxAddressBytes);
  ready.port = fields.number<std::uint16_t>("port", 1);
}
void read(Fields& fields, NodeFinished& finished) {
  finished.round = fields.number<std::int64_t>("round");
  finished.succeeded = fields.boolean("succeeded");
  finished.what = fields.text("what");
}

void read(Fields& fields, NativeWelcome& welcome) {
  welcome.protocol_version = fields.number<int>("protocol_version");
  welcome.muster_version = fields.text("muster_version", kMaxVersionBytes);
  if (welcome.protocol_version != kNativeProtocolVersion) return;
  welcome.peer_address = fields.text("peer_address", kMaxAddressBytes);
  if (fields.has("lease_ns")) welcome.lease = Duration(fields.number<std::int64_t>("lease_ns", 1));
}
void read(Fields& fields, NativeRefused& refused) {
  refused.text = fields.text("text");
}
void read(Fields& fields, NativeWaiting& waiting) {
  waiting.text = fields.text("text");
}
void read(Fields& fields, PrepareStore& prepare) {
  prepare.round = fields.number<std::int64_t>("round");
}
void read(Fields& fields, RoundComplete& round) {
  round.round = fields.number<std::int64_t>("round");
  round.group_rank = {fields.number<int>("group_rank")};
  round.group_world_size = fields.number<int>("group_world_size", 1);
  round.restart_count = fields.number<int>("restart_count");
  if (round.group_rank.value >= round.group_world_size)
    fields.fail("group_rank", "not below group_world_size");
  if (fields.has("workers")) {
    Fields workers = fields.object("workers");
    round.workers = WorkerRanks{.base_global_rank = {workers.number<int>("base_global_rank")},
                                .world_size = workers.number<int>("world_size", 1),
                                .base_role_rank = workers.number<int>("base_role_rank"),
                                .role_world_size = workers.number<int>("role_world_size", 1)};
  }
  if (fields.has("store")) {
    Fields store = fields.object("store");
    round.store = StoreAddress{.addr = store.text("addr", kMaxAddressBytes),
                               .port = store.number<std::uint16_t>("port", 1)};
  }
  if (fields.has("life")) round.life = fields.number<std::int64_t>("life", 1);
}
void read(Fields& fields, RestartRound& restart) {
  restart.round = fields.number<std::int64_t>("round");
  restart.cause = fields.one_of<RestartCause>("cause", kCauses);
  restart.who = read_name(fields.object("who"));
  restart.what = fields.text("what");
  if (fields.has("life")) restart.life = fields.number<std::int64_t>("life", 1);
}
void read(Fields&, RunClosed&) {}
void read(Fields& fields, RunEnded& ended) {
  ended.succeeded = fields.boolean("succeeded");
  if (fields.has("who")) ended.who = read_name(fields.object("who"));
  ended.why = fields.text("why");
}
void read(Fields& fields, JoinRefused& refused) {
  refused.why = fields.one_of<JoinRefused::Why>("why", kWhys);
  refused.text = fields.text("text");
}
void read(Fields&, NotAMember&) {}

// The alternative at `index`, read.
template <typename Variant, std::size_t I = 0>
Variant read_alternative(std::size_t index, Fields& fields) {
  if constexpr (I + 1 < std::variant_size_v<Variant>) {
    if (index != I) return read_alternative<Variant, I + 1>(index, fields);
  }
  std::variant_alternative_t<I, Variant> message;
  read(fields, message);
  return message;
}

template <typename Variant>
NativeResult<Variant> decode(std::string_view json, std::span<const std::string_view> types) {
  if (json.size() > kMaxNativeBytes)
    return NativeError{{}, "longer than " + std::to_string(kMaxNativeBytes) + " bytes"};
  const Json object = Json::parse(json, nullptr, false);
  if (object.is_discarded()) return NativeError{{}, "not JSON"};
  if (!object.is_object())
    return NativeError{{}, std::string("an object is wanted, this is: ") + object.type_name()};
  std::optional<NativeError> error;
  Fields fields(object, error);
  const auto index = fields.one_of<std::size_t>("type", types);
  if (error) return *std::move(error);
  Variant message = read_alternative<Variant>(index, fields);
  if (error) return *std::move(error);
  return message;
}

}  // namespace

std::string encode(const NativeRequest& request) {
  std::string frame(1, static_cast<char>(kNativeQuery));
  append_message(request, kRequestTypes[request.index()], frame);
  return frame;
}

std::string encode(const NativeMessage& message) {
  std::string frame;
  append_message(message, kMessageTypes[message.index()], frame);
  return frame;
}

std::string describe(const NativeError& error) {
  return (error.field.empty() ? "the message" : "field " + error.field) + ": " + error.reason;
}

NativeResult<NativeRequest> decode_native_request(std::string_view json, ConnectionId from) {
  auto request = decode<NativeRequest>(json, kRequestTypes);
  if (request)
    std::visit(
        [&](auto& message) {
          if constexpr (requires { message.from; }) message.from = from;
        },
        *request);
  return request;
}

NativeResult<NativeMessage> decode_native_message(std::string_view json) {
  return decode<NativeMessage>(json, kMessageTypes);
}

NativeResult<std::size_t> read_native_length(std::string_view bytes) {
  MUSTER_CHECK(bytes.size() >= kNativeLengthBytes);
  const auto length =
      boost::endian::load_little_u64(reinterpret_cast<const unsigned char*>(bytes.data()));
  if (length <= kMaxNativeBytes) return static_cast<std::size_t>(length);
  return NativeError{{},
                     std::to_string(length) + " bytes are announced, above the limit of " +
                         std::to_string(kMaxNativeBytes)};
}

}  // namespace muster
