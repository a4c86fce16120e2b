#include "rendezvous/messages/native_codec.h"

#include <algorithm>
#include <array>

#include <boost/endian/conversion.hpp>

#include "base/check.h"
#include "pickle/utf8.h"
#include "rendezvous/messages/native_json.h"
#include "rendezvous/messages/native_report.h"
#include "rendezvous/messages/native_welcome.h"

namespace muster {

namespace {

using native::Fields;
using native::Json;
using native::parse_json;
using native::read_hex;

// The fields are written in the order of docs/protocol.md.
using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kCauses = {"workers_failed", "node_lost", "node_left",
                                                     "node_joined", "requested"};
constexpr std::array<std::string_view, 6> kWhys = {"version", "settings",       "name_taken",
                                                   "closed",  "too_many_nodes", "timed_out"};
constexpr std::array<std::string_view, 3> kPolicies = {"now", "at-restart", "never"};

// In the order of the variant's alternatives.
constexpr std::array<std::string_view, std::variant_size_v<NativeRequest>> kRequestTypes = {
    "hello",       "join",     "resume", "keep_alive", "leave",  "workers_failed", "restart",
    "store_ready", "finished", "reach",  "prove",      "report", "answered"};
constexpr std::array<std::string_view, std::variant_size_v<NativeMessage>> kMessageTypes = {
    "welcome",       "refused",    "waiting",   "alive",        "prepare_store", "round",
    "restart_round", "run_closed", "run_ended", "join_refused", "not_a_member",  "resumed",
    "rejoin",        "reached",    "challenge", "ask",          "notice"};
constexpr std::array<std::string_view, 3> kStates = {"running", "stopped", "finished"};

// --- writing -------------------------------------------------------------------------------------

// Cuts a reason to kMaxNativeTextBytes. dump() replaces each byte that is not UTF-8 by a character
// of three bytes.
std::string cut(const std::string& text) {
  std::string start = text.substr(0, kMaxNativeTextBytes);
  for (int dropped = 0; dropped < 4 && start.size() + 4 > kMaxNativeTextBytes; ++dropped) {
    if (is_utf8(start)) return start;
    start.pop_back();  // The cut may have divided the last character.
  }
  if (!is_utf8(start)) start.resize(std::min(start.size(), kMaxNativeTextBytes / 3));
  return start;
}

OrderedJson write(const NodeName& name) {
  return {{"addr", name.addr}, {"pid", name.pid}, {"local_id", name.local_id}};
}

OrderedJson write(const RunSettings& run) {
  return {{"min_nodes", run.min_nodes},
          {"max_nodes", run.max_nodes},
          {"max_restarts", run.max_restarts},
          {"scale_policy", kPolicies[static_cast<std::size_t>(run.scale_policy)]},
          {"join_timeout_ns", run.join_timeout.count()},
          {"last_call_timeout_ns", run.last_call_timeout.count()}};
}

OrderedJson write(const WorkerRanks& workers) {
  return {{"base_global_rank", workers.base_global_rank.value},
          {"world_size", workers.world_size},
          {"base_role_rank", workers.base_role_rank},
          {"role_world_size", workers.role_world_size}};
}

OrderedJson write(const StoreAddress& store) {
  return {{"addr", store.addr}, {"port", store.port}};
}

struct FieldWriter {
  OrderedJson& out;

  void operator()(const NativeHello& hello) const {
    out["protocol_version"] = hello.protocol_version;
    out["muster_version"] = hello.muster_version;
    out["run_id"] = hello.run_id;
    if (hello.resumes) out["resumes"] = true;
    if (!hello.nonce.empty()) out["nonce"] = hello.nonce;
    if (hello.answers) out["answers"] = true;
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
    if (joined.generation != 0) out["generation"] = joined.generation;
    if (joined.restart_count != 0) out["restart_count"] = joined.restart_count;
    if (joined.lease > Duration::zero()) out["lease_ns"] = joined.lease.count();
    if (joined.proxied) out["proxied"] = true;
    if (joined.preferred_rank) out["preferred_rank"] = *joined.preferred_rank;
    if (!joined.command.empty()) out["command"] = joined.command;
    out["spare"] = joined.spare;
    out["hosts_rendezvous"] = joined.hosts_rendezvous;
  }
  void operator()(const NodeResumed& resumed) const {
    OrderedJson join = OrderedJson::object();
    FieldWriter{join}(resumed.join);
    out["join"] = std::move(join);
    out["state"] = kStates[static_cast<std::size_t>(resumed.state)];
    out["group_rank"] = resumed.group_rank;
    out["group_world_size"] = resumed.group_world_size;
    out["restart_count"] = resumed.restart_count;
    if (resumed.workers) out["workers"] = write(*resumed.workers);
    if (resumed.store) out["store"] = write(*resumed.store);
    if (!resumed.failure.empty()) out["failure"] = cut(resumed.failure);
  }
  void operator()(const KeptAlive&) const {}
  void operator()(const NodeLeft&) const {}
  void operator()(const WorkersFailed& failed) const {
    out["round"] = failed.round;
    out["what"] = cut(failed.what);
  }
  void operator()(const RestartRequested& requested) const {
    out["what"] = cut(requested.what);
    if (requested.round >= 0) out["round"] = requested.round;
  }
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

  void operator()(const NativeWelcome& welcome) const { native::write(welcome, out); }
  void operator()(const NativeAlive&) const {}
  void operator()(const NativeRefused& refused) const {
    out["text"] = cut(refused.text);
    if (!refused.proof.empty()) out["proof"] = refused.proof;
  }
  void operator()(const NativeWaiting& waiting) const { out["text"] = cut(waiting.text); }
  void operator()(const PrepareStore& prepare) const { out["round"] = prepare.round; }
  void operator()(const RoundComplete& round) const {
    out["round"] = round.round;
    out["group_rank"] = round.group_rank.value;
    out["group_world_size"] = round.group_world_size;
    out["restart_count"] = round.restart_count;
    if (round.workers) out["workers"] = write(*round.workers);
    if (round.store) out["store"] = write(*round.store);
    if (round.life != 0) out["life"] = round.life;
    if (round.generation != 0) out["generation"] = round.generation;
  }
  void operator()(const RestartRound& restart) const {
    out["round"] = restart.round;
    out["cause"] = kCauses[static_cast<std::size_t>(restart.cause)];
    out["who"] = write(restart.who);
    out["what"] = cut(restart.what);
    if (restart.life != 0) out["life"] = restart.life;
    if (restart.restart_count != 0) out["restart_count"] = restart.restart_count;
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
  void operator()(const NotAMember& lost) const { native::write(lost, out); }
  void operator()(const Resumed& resumed) const {
    out["round"] = resumed.round;
    out["generation"] = resumed.generation;
    out["life"] = resumed.life;
  }
  void operator()(const Rejoin& rejoin) const {
    out["round"] = rejoin.round;
    out["life"] = rejoin.life;
    out["why"] = cut(rejoin.why);
    if (rejoin.restart_count != 0) out["restart_count"] = rejoin.restart_count;
  }
  void operator()(const NativeReach& reach) const {
    out["generation"] = reach.generation;
    out["group_rank"] = reach.group_rank;
    if (reach.nonce.empty()) return;
    out["run_id"] = reach.run_id;
    out["nonce"] = reach.nonce;
  }
  void operator()(const NativeReached& reached) const {
    out["whole"] = reached.whole;
    if (reached.age > Duration::zero()) out["age_ns"] = reached.age.count();
    if (!reached.proof.empty()) out["proof"] = reached.proof;
  }
  void operator()(const NativeChallenge& challenge) const { out["nonce"] = challenge.nonce; }
  void operator()(const NativeProve& prove) const { out["proof"] = prove.proof; }
  void operator()(const NodeReport& report) const { native::write(report, out); }
  void operator()(const NodeAsked& asked) const { native::write(asked, out); }
  void operator()(const NodeAnswered& answered) const { native::write(answered, out); }
  void operator()(const Notice& notice) const { native::write(notice, out); }
};

// The usual number of fields of a message: allocates them at once.
constexpr std::size_t kUsualFields = 14;

template <typename Variant>
void append_message(const Variant& message, std::string_view type, std::string& out) {
  OrderedJson object = {{"type", type}};
  object.get_ref<OrderedJson::object_t&>().reserve(kUsualFields);
  std::visit(FieldWriter{object}, message);
  // Texts may come from outside: bytes that are not UTF-8 are replaced.
  const std::string json = object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
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

// Of a hello in another protocol version, only the two versions can be read.
void read(Fields& fields, NativeHello& hello) {
  hello.protocol_version = fields.number<int>("protocol_version");
  hello.muster_version = fields.text("muster_version", kMaxVersionBytes);
  if (hello.protocol_version != kNativeProtocolVersion) return;
  hello.run_id = fields.text("run_id", kMaxRunIdBytes);
  if (fields.has("resumes")) hello.resumes = fields.boolean("resumes");
  if (fields.has("nonce")) hello.nonce = read_hex(fields, "nonce");
  if (fields.has("answers")) hello.answers = fields.boolean("answers");
}
void read(Fields& fields, NodeJoined& joined) {
  joined.name = read_name(fields.object("name"));
  if (fields.has("instance")) joined.instance = fields.text("instance", kMaxInstanceBytes);
  joined.local_world_size = fields.number<int>("local_world_size");
  joined.role = fields.text("role", kMaxRoleBytes);
  joined.run = read_run(fields.object("run"));
  joined.protocol_version = fields.number<int>("protocol_version");
  joined.muster_version = fields.text("muster_version", kMaxVersionBytes);
  joined.last_round = fields.number<std::int64_t>("last_round", -1);
  if (fields.has("life")) joined.life = fields.number<std::int64_t>("life", 1);
  if (fields.has("generation"))
    joined.generation = fields.number<std::int64_t>("generation", 0, kMaxGeneration);
  if (fields.has("restart_count")) joined.restart_count = fields.number<int>("restart_count");
  if (fields.has("lease_ns")) joined.lease = Duration(fields.number<std::int64_t>("lease_ns"));
  if (fields.has("proxied")) joined.proxied = fields.boolean("proxied");
  if (fields.has("preferred_rank")) joined.preferred_rank = fields.number<int>("preferred_rank");
  if (fields.has("command")) joined.command = fields.text("command", kMaxCommandBytes);
  joined.spare = fields.boolean("spare");
  joined.hosts_rendezvous = fields.boolean("hosts_rendezvous");
  if (joined.run.min_nodes > joined.run.max_nodes) fields.fail("run.max_nodes", "below min_nodes");
}
WorkerRanks read_workers(Fields workers) {
  return {.base_global_rank = {workers.number<int>("base_global_rank")},
          .world_size = workers.number<int>("world_size", 1),
          .base_role_rank = workers.number<int>("base_role_rank"),
          .role_world_size = workers.number<int>("role_world_size", 1)};
}
StoreAddress read_store(Fields store) {
  return {.addr = store.text("addr", kMaxAddressBytes),
          .port = store.number<std::uint16_t>("port", 1)};
}
void read(Fields& fields, NodeResumed& resumed) {
  Fields join = fields.object("join");
  read(join, resumed.join);
  if (resumed.join.last_round < 0) join.fail("last_round", "no round can be resumed");
  resumed.join.resumes = true;
  resumed.state = fields.one_of<NodeResumed::State>("state", kStates);
  resumed.group_rank = fields.number<int>("group_rank");
  resumed.group_world_size = fields.number<int>("group_world_size", 1);
  resumed.restart_count = fields.number<int>("restart_count");
  if (resumed.group_rank >= resumed.group_world_size)
    fields.fail("group_rank", "not below group_world_size");
  if (fields.has("workers")) resumed.workers = read_workers(fields.object("workers"));
  if (fields.has("store")) resumed.store = read_store(fields.object("store"));
  if (fields.has("failure")) resumed.failure = fields.text("failure");
}
void read(Fields&, KeptAlive&) {}
void read(Fields&, NodeLeft&) {}
void read(Fields& fields, WorkersFailed& failed) {
  failed.round = fields.number<std::int64_t>("round");
  failed.what = fields.text("what");
}
void read(Fields& fields, RestartRequested& requested) {
  requested.what = fields.text("what");
  if (fields.has("round")) requested.round = fields.number<std::int64_t>("round");
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

void read(Fields&, NativeAlive&) {}
void read(Fields& fields, NativeRefused& refused) {
  refused.text = fields.text("text");
  if (fields.has("proof")) refused.proof = read_hex(fields, "proof");
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
  if (fields.has("workers")) round.workers = read_workers(fields.object("workers"));
  if (fields.has("store")) round.store = read_store(fields.object("store"));
  if (fields.has("life")) round.life = fields.number<std::int64_t>("life", 1);
  if (fields.has("generation"))
    round.generation = fields.number<std::int64_t>("generation", 0, kMaxGeneration);
}
void read(Fields& fields, RestartRound& restart) {
  restart.round = fields.number<std::int64_t>("round");
  restart.cause = fields.one_of<RestartCause>("cause", kCauses);
  restart.who = read_name(fields.object("who"));
  restart.what = fields.text("what");
  if (fields.has("life")) restart.life = fields.number<std::int64_t>("life", 1);
  if (fields.has("restart_count")) restart.restart_count = fields.number<int>("restart_count");
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
void read(Fields& fields, Resumed& resumed) {
  resumed.round = fields.number<std::int64_t>("round", -1);
  resumed.generation = fields.number<std::int64_t>("generation", 0, kMaxGeneration);
  resumed.life = fields.number<std::int64_t>("life");
}
void read(Fields& fields, Rejoin& rejoin) {
  rejoin.round = fields.number<std::int64_t>("round", -1);
  rejoin.life = fields.number<std::int64_t>("life");
  rejoin.why = fields.text("why");
  if (fields.has("restart_count")) rejoin.restart_count = fields.number<int>("restart_count");
}
void read(Fields& fields, NativeReach& reach) {
  reach.generation = fields.number<std::int64_t>("generation", 0, kMaxGeneration);
  reach.group_rank = fields.number<int>("group_rank");
  if (!fields.has("nonce")) return;
  reach.run_id = fields.text("run_id", kMaxRunIdBytes);
  reach.nonce = read_hex(fields, "nonce");
}
void read(Fields& fields, NativeReached& reached) {
  reached.whole = fields.boolean("whole");
  if (fields.has("age_ns")) reached.age = Duration(fields.number<std::int64_t>("age_ns"));
  if (fields.has("proof")) reached.proof = read_hex(fields, "proof");
}
void read(Fields& fields, NativeChallenge& challenge) {
  challenge.nonce = read_hex(fields, "nonce");
}
void read(Fields& fields, NativeProve& prove) {
  prove.proof = read_hex(fields, "proof");
}
using native::read;  // native_welcome.h; reports of nodes and questions to them: native_report.h.

// Reads the alternative at `index`.
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
  Json object;
  if (auto refused = parse_json(json, object)) return *std::move(refused);
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
