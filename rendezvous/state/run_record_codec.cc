#include "rendezvous/state/run_record_codec.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "base/bounded_json.h"
#include "base/json_fields.h"
#include "rendezvous/messages/fact_fields.h"
#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

constexpr std::array kFailureKinds = {RunEvent::Kind::NodeLost, RunEvent::Kind::RoundRestarts,
                                      RunEvent::Kind::Failed, RunEvent::Kind::Broken};
constexpr std::array<std::string_view, 3> kStandings = {"member", "finished", "lost"};
constexpr std::int64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();
// The largest record of a run has fewer than 2,000 values.
constexpr JsonLimits kRecordLimits{.values = 10'000, .depth = 16};

std::array<std::string_view, kFailureKinds.size()> failure_kinds() {
  std::array<std::string_view, kFailureKinds.size()> names;
  std::transform(kFailureKinds.begin(), kFailureKinds.end(), names.begin(),
                 [](RunEvent::Kind kind) { return to_string(kind); });
  return names;
}

std::array<std::string_view, kRestartCauses> restart_causes() {
  std::array<std::string_view, kRestartCauses> names;
  for (std::size_t i = 0; i < names.size(); ++i)
    names[i] = to_string(static_cast<RestartCause>(i));
  return names;
}

}  // namespace

// --- the records, in the order in which their fields are written ---------------------------------

template <typename V>
void fields(V& v, Of<V, RunOutcome>& outcome) {
  fields_of_end(v, outcome, kRecordedFacts);
}

template <typename V>
void fields(V& v, Of<V, RestartCosts>& costs) {
  v.number("failures", costs.failures);
  v.number("hangs", costs.hangs);
  v.number("nodes", costs.nodes);
  v.number("without_progress", costs.without_progress);
  v.number("since_progress", costs.since_progress);
  v.optional_number("best_step", costs.best_step);
  v.optional_flag("tells_progress", costs.tells_progress);
  v.optional_flag("progressed", costs.progressed);
  v.optional_flag("judged", costs.judged);
}

template <typename V>
void fields(V& v, Of<V, RecordedFailure>& failure) {
  const auto found = std::find(kFailureKinds.begin(), kFailureKinds.end(), failure.kind);
  auto kind =
      std::min(static_cast<std::size_t>(found - kFailureKinds.begin()), kFailureKinds.size() - 1);
  v.one_of("kind", kind, failure_kinds());
  v.number("at_ms", failure.at_ms);
  v.number("round", failure.round, -1);
  if constexpr (V::kReads) {
    failure.kind = kFailureKinds[kind];
    // An earlier muster wrote the -1 of a node that claimed to resume no round.
    failure.round = std::max<std::int64_t>(failure.round, 0);
  }
  v.text("node", failure.node, kMaxRecordedText);
  v.optional_number("rank", failure.rank);
  v.optional_one_of("cause", failure.cause, restart_causes());
  v.text("text", failure.text, kMaxRecordedText);
}

template <typename V>
void fields(V& v, Of<V, PreviousRun>& run) {
  v.flag("succeeded", run.succeeded);
  v.text("why", run.why, kMaxRecordedText);
  v.number("restarts_used", run.restarts_used);
  v.optional_flag("preempted", run.preempted);
  v.optional_number("ended_at_ms", run.ended_at_ms, 0, kMaxNumber);
  v.optional_object("first_failure", run.first_failure);
  v.optional_object("failure_report", run.failure_report);
}

template <typename V>
void fields(V& v, Of<V, RunRecord>& record) {
  v.object("settings", record.settings, kRecordedFacts);
  v.number("life", record.life);
  v.number("round", record.round);
  v.number("generation", record.generation);
  v.number("highest_generation", record.highest_generation);
  v.flag("had_round", record.had_round);
  v.flag("complete", record.complete);
  v.flag("preparing", record.preparing);
  v.flag("draining", record.draining);
  v.flag("closed", record.closed);
  v.number("restarts_used", record.restarts_used);
  v.number("prepare_failures", record.prepare_failures);
  v.number("last_world", record.last_world, 0, std::int64_t{kMaxMembers});
  v.optional_object("store", record.store, kRecordedFacts);
  if (v.has("restart", record.restart_who.has_value()))
    v.group("restart", [&](auto& restart) {
      if constexpr (V::kReads) record.restart_who.emplace();
      restart.object("who", *record.restart_who, kRecordedFacts);
      restart.text("what", record.restart_what, kMaxRecordedText);
    });
  v.optional_object("outcome", record.outcome);
  v.optional_time("last_call_left_ns", record.last_call_left);
  v.optional_number("ended_generation", record.ended_generation, 0, kMaxGeneration);
  v.optional_each("kept_out", record.kept_out, kMaxKeptOut, [](auto& each, auto& entry) {
    each.text("node", entry.node, kMaxRecordedText);
    each.one_of("how", entry.how, kKeptOutHows);
  });
  v.optional_each("strikes", record.strikes, kMaxStruckHosts, [](auto& each, auto& host) {
    each.text("host", host.host, kMaxRecordedText);
    each.number("failures", host.strikes.failures, 0, kMaxStrikes);
    each.number("losses", host.strikes.losses, 0, kMaxStrikes);
  });
  v.optional_each(
      "lost_agents", record.lost_agents, kMaxLostAgents,
      [](auto& each, auto& instance) { each.text("instance", instance, kMaxInstanceBytes); });
  v.optional_object("restart_costs", record.restart_costs);
  v.optional_number("uncounted_generation", record.uncounted_generation, 0, kMaxGeneration);
  v.optional_time("lease_ns", record.lease);
  v.optional_object("first_failure", record.first_failure);
  v.optional_object("failure_report", record.failure_report);
  v.optional_number("ended_at_ms", record.ended_at_ms, 0, kMaxNumber);
  v.optional_number("began_at_ms", record.began_at_ms, 0, kMaxNumber);
  v.optional_object("previous", record.previous);
}

template <typename V>
void fields(V& v, Of<V, RecordedDoom>& doom) {
  v.number("deadline_ms", doom.deadline_ms, 0, kMaxNumber);
  v.text("reason", doom.reason, kMaxRecordedText);
  v.optional_flag("in_job", doom.in_job);
  v.optional_flag("is_needed", doom.is_needed);
}

template <typename V>
void fields(V& v, Of<V, MemberRecord>& record) {
  v.object("name", record.name, kRecordedFacts);
  v.one_of("standing", record.standing, kStandings);
  v.optional_number("rank", record.rank);
  v.flag("native", record.native);
  v.optional_text("instance", record.instance, kMaxInstanceBytes);
  v.number("local_world_size", record.local_world_size, 1);
  v.text("role", record.role, kMaxRecordedText);
  v.optional_number("preferred_rank", record.preferred_rank, std::numeric_limits<int>::min(),
                    std::numeric_limits<int>::max());
  v.flag("spare", record.spare);
  v.flag("hosts_rendezvous", record.hosts_rendezvous);
  v.optional_text("why", record.why, kMaxRecordedText);
  v.optional_object("notice", record.doom);
}

template <typename V>
void fields(V& v, Of<V, EndedRun>& run) {
  v.text("run_id", run.run_id, kMaxRecordedText);
  v.number("ended_at", run.ended_at, 0, kMaxNumber);
  v.number("rounds", run.rounds);
  v.number("generation", run.generation);
  v.number("nodes", run.nodes);
  v.number("restarts", run.restarts);
  v.object("outcome", run.outcome);
}

namespace {

/// Any error becomes one sentence.
template <typename Record>
boost::system::result<Record, RecordError> read_record(std::string_view text) {
  JsonReader::Json json;
  if (parse_bounded_json(text, kRecordLimits, json) || !json.is_object())
    return RecordError{"it is no JSON object"};
  Record record;
  if (const auto error = read_fields(json, record)) return RecordError{describe(*error)};
  return record;
}

}  // namespace

std::string encode(const RunRecord& record) {
  return fields_text(record);
}

std::string encode(const MemberRecord& record) {
  return fields_text(record);
}

std::string encode(const EndedRun& run) {
  return fields_text(run);
}

boost::system::result<RunRecord, RecordError> decode_run_record(std::string_view text) {
  return read_record<RunRecord>(text);
}

boost::system::result<MemberRecord, RecordError> decode_member_record(std::string_view text) {
  return read_record<MemberRecord>(text);
}

boost::system::result<EndedRun, RecordError> decode_ended_run(std::string_view text) {
  return read_record<EndedRun>(text);
}

}  // namespace muster
