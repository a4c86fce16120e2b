#include "rendezvous/state/run_record_codec.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <string>
#include <utility>

#include "rendezvous/messages/native_json.h"
#include "rendezvous/messages/native_report.h"
#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

using native::Fields;
using RecordJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kScalePolicies = {"now", "at-restart", "never"};
constexpr std::array<std::string_view, 2> kKeptOutHows = {"drained", "excluded"};
constexpr std::array kFailureKinds = {RunEvent::Kind::NodeLost, RunEvent::Kind::RoundRestarts,
                                      RunEvent::Kind::Failed, RunEvent::Kind::Broken};
constexpr std::array<std::string_view, 3> kStandings = {"member", "finished", "lost"};
// A reason from outside and the host's addition to it, in characters of up to three bytes.
constexpr std::size_t kMaxRecordedText = 8 * kMaxNativeTextBytes;
constexpr std::int64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();

std::string to_text(const RecordJson& json) {
  return json.dump(-1, ' ', false, RecordJson::error_handler_t::replace);
}

RecordJson name_json(const NodeName& name) {
  return {{"addr", name.addr}, {"pid", name.pid}, {"local_id", name.local_id}};
}

RecordJson settings_json(const RunSettings& run) {
  return {{"min_nodes", run.min_nodes},
          {"max_nodes", run.max_nodes},
          {"max_restarts", run.max_restarts},
          {"scale_policy", kScalePolicies[static_cast<std::size_t>(run.scale_policy)]},
          {"join_timeout_ns", run.join_timeout.count()},
          {"last_call_timeout_ns", run.last_call_timeout.count()}};
}

RecordJson outcome_json(const RunOutcome& outcome) {
  RecordJson json = {{"succeeded", outcome.succeeded}};
  if (outcome.who) json["who"] = name_json(*outcome.who);
  json["why"] = outcome.why;
  return json;
}

RecordJson failure_json(const RecordedFailure& failure) {
  RecordJson json = {{"kind", to_string(failure.kind)},
                     {"at_ms", failure.at_ms},
                     {"round", failure.round},
                     {"node", failure.node}};
  if (failure.rank) json["rank"] = *failure.rank;
  if (failure.cause) json["cause"] = to_string(*failure.cause);
  json["text"] = failure.text;
  return json;
}

/// One JSON object as text. Thousands of members are recorded at once while all nodes wait, so the
/// text is written directly, without a JSON value for each member.
class ObjectText {
 public:
  void add(std::string_view name, std::string_view text) {
    const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
      return c >= ' ' && c <= '~' && c != '"' && c != '\\';
    });
    begin(name);
    if (is_plain)
      text_.append("\"").append(text).append("\"");
    else
      text_ += to_text(RecordJson(text));
  }
  void add(std::string_view name, std::integral auto number) {
    begin(name);
    if constexpr (std::same_as<decltype(number), bool>)
      text_ += number ? "true" : "false";
    else
      text_ += std::to_string(number);
  }
  void add_object(std::string_view name, std::string_view object) {
    begin(name);
    text_ += object;
  }
  std::string end() && {
    text_ += '}';
    return std::move(text_);
  }

 private:
  void begin(std::string_view name) {
    text_ += text_.size() > 1 ? ",\"" : "\"";
    text_.append(name).append("\":");
  }

  std::string text_ = "{";
};

// --- reading -------------------------------------------------------------------------------------

NodeName recorded_name(Fields fields) {
  return {.addr = fields.text("addr", kMaxRecordedText),
          .pid = fields.number<std::int64_t>("pid", std::numeric_limits<std::int64_t>::min()),
          .local_id =
              fields.number<std::int64_t>("local_id", std::numeric_limits<std::int64_t>::min())};
}

RunSettings recorded_settings(Fields fields) {
  RunSettings run;
  run.min_nodes = fields.number<int>("min_nodes", 1);
  run.max_nodes = fields.number<int>("max_nodes", run.min_nodes);
  run.max_restarts = fields.number<int>("max_restarts");
  run.scale_policy = fields.one_of<ScalePolicy>("scale_policy", kScalePolicies);
  run.join_timeout = Duration(fields.number<std::int64_t>("join_timeout_ns"));
  run.last_call_timeout = Duration(fields.number<std::int64_t>("last_call_timeout_ns"));
  return run;
}

RunOutcome recorded_outcome(Fields fields) {
  RunOutcome outcome{.succeeded = fields.boolean("succeeded"), .who = std::nullopt};
  if (fields.has("who")) outcome.who = recorded_name(fields.object("who"));
  outcome.why = fields.text("why", kMaxRecordedText);
  return outcome;
}

RecordedFailure recorded_failure(Fields fields) {
  std::array<std::string_view, kFailureKinds.size()> kinds;
  std::transform(kFailureKinds.begin(), kFailureKinds.end(), kinds.begin(),
                 [](RunEvent::Kind kind) { return to_string(kind); });
  std::array<std::string_view, kRestartCauses> causes;
  for (std::size_t i = 0; i < causes.size(); ++i)
    causes[i] = to_string(static_cast<RestartCause>(i));
  RecordedFailure failure;
  failure.kind = kFailureKinds[fields.one_of<std::size_t>("kind", kinds)];
  failure.at_ms = fields.number<std::int64_t>("at_ms");
  // An earlier muster wrote the -1 of a node that claimed to resume no round.
  failure.round = std::max<std::int64_t>(fields.number<std::int64_t>("round", -1), 0);
  failure.node = fields.text("node", kMaxRecordedText);
  if (fields.has("rank")) failure.rank = fields.number<int>("rank");
  if (fields.has("cause")) failure.cause = fields.one_of<RestartCause>("cause", causes);
  failure.text = fields.text("text", kMaxRecordedText);
  return failure;
}

/// Reads the lists of operators' changes, strikes and lost nodes. An older record has none of them.
void read_lists(Fields& fields, RunRecord& record) {
  if (fields.has("kept_out"))
    fields.each("kept_out", kMaxKeptOut, [&](Fields entry) {
      const auto how = entry.one_of<KeptOutHow>("how", kKeptOutHows);
      record.kept_out.push_back({entry.text("node", kMaxRecordedText), how});
    });
  if (fields.has("strikes"))
    fields.each("strikes", kMaxStruckHosts, [&](Fields host) {
      const Strikes strikes{host.number<int>("failures", 0, kMaxStrikes),
                            host.number<int>("losses", 0, kMaxStrikes)};
      record.strikes.push_back({host.text("host", kMaxRecordedText), strikes});
    });
  if (fields.has("lost_agents"))
    fields.each("lost_agents", kMaxLostAgents, [&](Fields agent) {
      record.lost_agents.push_back(agent.text("instance", kMaxInstanceBytes));
    });
}

/// Reads one object with `read`; any error becomes one sentence.
template <typename Record, typename Read>
boost::system::result<Record, RecordError> read_record(std::string_view text, const Read& read) {
  const native::Json json = native::Json::parse(text, nullptr, false);
  if (!json.is_object()) return RecordError{"it is no JSON object"};
  std::optional<NativeError> error;
  Record record = read(Fields(json, error));
  if (error) return RecordError{describe(*error)};
  return record;
}

}  // namespace

std::string encode(const RunRecord& record) {
  RecordJson json = {{"settings", settings_json(record.settings)},
                     {"life", record.life},
                     {"round", record.round},
                     {"generation", record.generation},
                     {"highest_generation", record.highest_generation},
                     {"had_round", record.had_round},
                     {"complete", record.complete},
                     {"preparing", record.preparing},
                     {"draining", record.draining},
                     {"closed", record.closed},
                     {"restarts_used", record.restarts_used},
                     {"prepare_failures", record.prepare_failures},
                     {"last_world", record.last_world}};
  if (record.store) json["store"] = {{"addr", record.store->addr}, {"port", record.store->port}};
  if (record.restart_who)
    json["restart"] = {{"who", name_json(*record.restart_who)}, {"what", record.restart_what}};
  if (record.outcome) json["outcome"] = outcome_json(*record.outcome);
  if (record.last_call_left) json["last_call_left_ns"] = record.last_call_left->count();
  if (record.ended_generation) json["ended_generation"] = *record.ended_generation;
  for (const KeptOutEntry& entry : record.kept_out)
    json["kept_out"].push_back(
        {{"node", entry.node}, {"how", kKeptOutHows[static_cast<std::size_t>(entry.how)]}});
  for (const HostStrikes& host : record.strikes)
    json["strikes"].push_back({{"host", host.host},
                               {"failures", host.strikes.failures},
                               {"losses", host.strikes.losses}});
  for (const std::string& instance : record.lost_agents)
    json["lost_agents"].push_back({{"instance", instance}});
  if (record.uncounted_generation) json["uncounted_generation"] = *record.uncounted_generation;
  if (record.lease > Duration::zero()) json["lease_ns"] = record.lease.count();
  if (record.first_failure) json["first_failure"] = failure_json(*record.first_failure);
  if (record.failure_report) json["failure_report"] = native::write(*record.failure_report);
  if (record.ended_at_ms) json["ended_at_ms"] = *record.ended_at_ms;
  return to_text(json);
}

boost::system::result<RunRecord, RecordError> decode_run_record(std::string_view text) {
  return read_record<RunRecord>(text, [](Fields fields) {
    RunRecord record;
    record.settings = recorded_settings(fields.object("settings"));
    record.life = fields.number<std::int64_t>("life");
    record.round = fields.number<std::int64_t>("round");
    record.generation = fields.number<std::int64_t>("generation");
    record.highest_generation = fields.number<std::int64_t>("highest_generation");
    record.had_round = fields.boolean("had_round");
    record.complete = fields.boolean("complete");
    record.preparing = fields.boolean("preparing");
    record.draining = fields.boolean("draining");
    record.closed = fields.boolean("closed");
    record.restarts_used = fields.number<int>("restarts_used");
    record.prepare_failures = fields.number<int>("prepare_failures");
    record.last_world = fields.number<std::int64_t>("last_world", 0, std::int64_t{kMaxMembers});
    if (fields.has("store")) {
      Fields store = fields.object("store");
      record.store =
          StoreAddress{store.text("addr", kMaxRecordedText), store.number<std::uint16_t>("port")};
    }
    if (fields.has("restart")) {
      Fields restart = fields.object("restart");
      record.restart_who = recorded_name(restart.object("who"));
      record.restart_what = restart.text("what", kMaxRecordedText);
    }
    if (fields.has("outcome")) record.outcome = recorded_outcome(fields.object("outcome"));
    if (fields.has("last_call_left_ns"))
      record.last_call_left = Duration(fields.number<std::int64_t>("last_call_left_ns"));
    if (fields.has("ended_generation"))
      record.ended_generation = fields.number<std::int64_t>("ended_generation", 0, kMaxGeneration);
    if (fields.has("uncounted_generation"))
      record.uncounted_generation =
          fields.number<std::int64_t>("uncounted_generation", 0, kMaxGeneration);
    if (fields.has("lease_ns")) record.lease = Duration(fields.number<std::int64_t>("lease_ns"));
    if (fields.has("first_failure"))
      record.first_failure = recorded_failure(fields.object("first_failure"));
    if (fields.has("failure_report"))
      record.failure_report = native::read_failure(fields.object("failure_report"));
    if (fields.has("ended_at_ms"))
      record.ended_at_ms = fields.number<std::int64_t>("ended_at_ms", 0, kMaxNumber);
    read_lists(fields, record);
    return record;
  });
}

std::string encode(const MemberRecord& record) {
  ObjectText name;
  name.add("addr", record.name.addr);
  name.add("pid", record.name.pid);
  name.add("local_id", record.name.local_id);
  ObjectText out;
  out.add_object("name", std::move(name).end());
  out.add("standing", kStandings[static_cast<std::size_t>(record.standing)]);
  if (record.rank) out.add("rank", *record.rank);
  out.add("native", record.native);
  if (!record.instance.empty()) out.add("instance", record.instance);
  out.add("local_world_size", record.local_world_size);
  out.add("role", record.role);
  if (record.preferred_rank) out.add("preferred_rank", *record.preferred_rank);
  out.add("spare", record.spare);
  out.add("hosts_rendezvous", record.hosts_rendezvous);
  if (!record.why.empty()) out.add("why", record.why);
  return std::move(out).end();
}

boost::system::result<MemberRecord, RecordError> decode_member_record(std::string_view text) {
  return read_record<MemberRecord>(text, [](Fields fields) {
    MemberRecord record;
    record.name = recorded_name(fields.object("name"));
    record.standing = fields.one_of<MemberRecord::Standing>("standing", kStandings);
    if (fields.has("rank")) record.rank = fields.number<int>("rank");
    record.native = fields.boolean("native");
    if (fields.has("instance")) record.instance = fields.text("instance", kMaxInstanceBytes);
    record.local_world_size = fields.number<int>("local_world_size", 1);
    record.role = fields.text("role", kMaxRecordedText);
    if (fields.has("preferred_rank"))
      record.preferred_rank = fields.number<int>("preferred_rank", std::numeric_limits<int>::min(),
                                                 std::numeric_limits<int>::max());
    record.spare = fields.boolean("spare");
    record.hosts_rendezvous = fields.boolean("hosts_rendezvous");
    if (fields.has("why")) record.why = fields.text("why", kMaxRecordedText);
    return record;
  });
}

std::string encode(const EndedRun& run) {
  return to_text({{"run_id", run.run_id},
                  {"ended_at", run.ended_at},
                  {"rounds", run.rounds},
                  {"generation", run.generation},
                  {"nodes", run.nodes},
                  {"restarts", run.restarts},
                  {"outcome", outcome_json(run.outcome)}});
}

boost::system::result<EndedRun, RecordError> decode_ended_run(std::string_view text) {
  return read_record<EndedRun>(text, [](Fields fields) {
    EndedRun run;
    run.run_id = fields.text("run_id", kMaxRecordedText);
    run.ended_at = fields.number<std::int64_t>("ended_at", 0, kMaxNumber);
    run.rounds = fields.number<std::int64_t>("rounds");
    run.generation = fields.number<std::int64_t>("generation");
    run.nodes = fields.number<std::int64_t>("nodes");
    run.restarts = fields.number<int>("restarts");
    run.outcome = recorded_outcome(fields.object("outcome"));
    return run;
  });
}

}  // namespace muster
