// The fields of each message of the native door, in the order of docs/protocol.md. Private: for
// native_codec.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/json_fields.h"
#include "rendezvous/messages/fact_fields.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/messages/text_cuts.h"
#include "rendezvous/rounds/kept_out.h"
#include "rendezvous/rounds/limits.h"

namespace muster {

inline constexpr std::array<std::string_view, 5> kCauses = {
    "workers_failed", "node_lost", "node_left", "node_joined", "requested"};
inline constexpr std::array<std::string_view, 6> kWhys = {"version", "settings",       "name_taken",
                                                          "closed",  "too_many_nodes", "timed_out"};
inline constexpr std::array<std::string_view, 3> kStates = {"running", "stopped", "finished"};
inline constexpr std::array<std::string_view, 2> kQuestions = {"log", "stacks"};
inline constexpr std::array<std::string_view, 2> kFollows = {"shrink", "stop"};
/// Three years: a sum with another time does not overflow.
inline constexpr std::int64_t kMaxAge = 100'000'000'000'000'000;
inline constexpr std::int64_t kMaxCount = std::numeric_limits<std::int64_t>::max();
/// Below the largest number, so that the offset of the piece's end fits into the type, too.
inline constexpr std::int64_t kMaxOffset = kMaxCount - std::int64_t{kMaxPieceBytes};

// --- facts ---------------------------------------------------------------------------------------

template <typename V>
void fields(V& v, Of<V, WorkerRanks>& workers) {
  v.number("base_global_rank", workers.base_global_rank.value);
  v.number("world_size", workers.world_size, 1);
  v.number("base_role_rank", workers.base_role_rank);
  v.number("role_world_size", workers.role_world_size, 1);
}

template <typename V>
void fields(V& v, Of<V, WorkerReport>& worker) {
  v.number("local_rank", worker.local_rank, 0, kMaxLocalWorldSize);
  v.one_of("state", worker.state, kWorkerStates);
  v.optional_number("pid", worker.pid);
  v.optional_number("exit_code", worker.exit_code, -128, 255);
  v.optional_number("step", worker.step, std::numeric_limits<std::int64_t>::min(), kMaxCount);
  v.optional_time("progress_before_ns", worker.progress_before, 0, kMaxAge);
}

// --- requests of nodes ---------------------------------------------------------------------------

// Of a hello in another protocol version, only the two versions can be read.
template <typename V>
void fields(V& v, Of<V, NativeHello>& hello) {
  v.number("protocol_version", hello.protocol_version);
  v.text("muster_version", hello.muster_version, kMaxVersionBytes);
  if (V::kReads && hello.protocol_version != kNativeProtocolVersion) return;
  v.text("run_id", hello.run_id, kMaxRunIdBytes);
  v.optional_flag("resumes", hello.resumes);
  v.optional_hex("nonce", hello.nonce, kProofDigits);
  v.optional_flag("answers", hello.answers);
  v.optional_flag("notices", hello.notices);
}

template <typename V>
void fields(V& v, Of<V, NodeJoined>& joined) {
  v.object("name", joined.name);
  v.optional_text("instance", joined.instance, kMaxInstanceBytes);
  v.number("local_world_size", joined.local_world_size);
  v.text("role", joined.role, kMaxRoleBytes);
  v.object("run", joined.run);
  v.number("protocol_version", joined.protocol_version);
  v.text("muster_version", joined.muster_version, kMaxVersionBytes);
  v.number("last_round", joined.last_round, -1);
  v.optional_number("life", joined.life, 1);
  v.optional_number("generation", joined.generation, 0, kMaxGeneration);
  v.optional_number("restart_count", joined.restart_count);
  v.optional_time("lease_ns", joined.lease);
  v.optional_flag("proxied", joined.proxied);
  v.optional_number("preferred_rank", joined.preferred_rank);
  v.optional_text("command", joined.command, kMaxCommandBytes);
  v.flag("spare", joined.spare);
  v.flag("hosts_rendezvous", joined.hosts_rendezvous);
  v.optional_flag("progress_file", joined.has_progress_file);
  v.check(joined.run.min_nodes <= joined.run.max_nodes, "run.max_nodes", "below min_nodes");
}

template <typename V>
void fields(V& v, Of<V, NodeResumed>& resumed) {
  v.object("join", resumed.join);
  v.check(resumed.join.last_round >= 0, "join.last_round", "no round can be resumed");
  if constexpr (V::kReads) resumed.join.resumes = true;
  v.one_of("state", resumed.state, kStates);
  v.number("group_rank", resumed.group_rank);
  v.number("group_world_size", resumed.group_world_size, 1);
  v.number("restart_count", resumed.restart_count);
  v.check(resumed.group_rank < resumed.group_world_size, "group_rank",
          "not below group_world_size");
  v.optional_object("workers", resumed.workers);
  v.optional_object("store", resumed.store);
  v.optional_text("failure", resumed.failure, kReason);
  v.optional_flag("hung", resumed.hung);
  v.optional_flag("progressed", resumed.progressed);
  v.optional_number("step", resumed.step);
}

template <typename V>
void fields(V& /*v*/, Of<V, KeptAlive>& /*alive*/) {}
template <typename V>
void fields(V& /*v*/, Of<V, NodeLeft>& /*left*/) {}

template <typename V>
void fields(V& v, Of<V, WorkersFailed>& failed) {
  v.number("round", failed.round);
  v.text("what", failed.what, kReason);
  v.optional_flag("hung", failed.hung);
}

template <typename V>
void fields(V& v, Of<V, NodeProgressed>& progressed) {
  v.number("round", progressed.round);
  v.optional_number("step", progressed.step);
}

template <typename V>
void fields(V& v, Of<V, RestartRequested>& requested) {
  v.text("what", requested.what, kReason);
  if (v.has("round", requested.round >= 0)) v.number("round", requested.round);
}

template <typename V>
void fields(V& v, Of<V, StoreReady>& ready) {
  v.number("round", ready.round);
  v.text("addr", ready.addr, kMaxAddressBytes);
  v.number("port", ready.port, 1);
}

template <typename V>
void fields(V& v, Of<V, NodeFinished>& finished) {
  v.number("round", finished.round);
  v.flag("succeeded", finished.succeeded);
  v.text("what", finished.what, kReason);
}

template <typename V>
void fields(V& v, Of<V, NativeReach>& reach) {
  v.number("generation", reach.generation, 0, kMaxGeneration);
  v.number("group_rank", reach.group_rank);
  if (!v.has("nonce", !reach.nonce.empty())) return;
  v.text("run_id", reach.run_id, kMaxRunIdBytes);
  v.hex("nonce", reach.nonce, kProofDigits);
}

template <typename V>
void fields(V& v, Of<V, NativeProve>& prove) {
  v.hex("proof", prove.proof, kProofDigits);
}

template <typename V>
void fields(V& v, Of<V, NodeReport>& report) {
  v.number("round", report.round);
  v.number("starts", report.starts);
  v.number("workers", report.workers, 0, kMaxLocalWorldSize);
  v.each("listed", report.listed, kMaxReportedWorkers,
         [](auto& each, auto& worker) { fields(each, worker); });
  v.optional_object("failure", report.failure);
  v.optional_number("zygote_bytes", report.zygote_bytes, 0, kMaxCount);
}

template <typename V>
void fields(V& v, Of<V, NodeAnswered>& answered) {
  v.number("number", answered.number, 0, kMaxCount);
  v.optional_text("error", answered.error, kReportText);
  if (v.has("error", !answered.error.empty())) return;
  v.base64("base64", answered.bytes, kMaxPieceBytes);
  v.number("offset", answered.offset, 0, kMaxOffset);
  v.number("size", answered.size);
  v.number("attempt", answered.attempt);
}

template <typename V>
void fields(V& v, Of<V, NodeNotified>& notified) {
  v.time("left_ns", notified.left, 0, kLongestWait.count());
  v.text("reason", notified.reason, kNoticeReason);
}

template <typename V>
void fields(V& v, Of<V, NodeSaved>& saved) {
  v.number("round", saved.round);
}

// --- messages to nodes ---------------------------------------------------------------------------

// Of a welcome in another protocol version, only the two versions are read.
template <typename V>
void fields(V& v, Of<V, NativeWelcome>& welcome) {
  v.number("protocol_version", welcome.protocol_version);
  v.text("muster_version", welcome.muster_version, kMaxVersionBytes);
  if (V::kReads && welcome.protocol_version != kNativeProtocolVersion) return;
  v.text("peer_address", welcome.peer_address, kMaxAddressBytes);
  v.optional_text("peer_end", welcome.peer_end, kMaxAddressBytes);
  v.optional_text("own_end", welcome.own_end, kMaxAddressBytes);
  v.optional_time("lease_ns", welcome.lease, 1);
  v.optional_flag("resumes", welcome.resumes);
  v.optional_flag("outlives_nodes", welcome.outlives_nodes);
  v.optional_hex("proof", welcome.proof, kProofDigits);
  v.optional_flag("takes_reports", welcome.takes_reports);
  v.optional_text("state_id", welcome.state_id, kMaxStateIdBytes);
  v.optional_flag("state_is_shared", welcome.state_is_shared);
  v.optional_flag("notices", welcome.notices);
  v.optional_flag("takes_progress", welcome.takes_progress);
}

template <typename V>
void fields(V& /*v*/, Of<V, NativeAlive>& /*alive*/) {}

template <typename V>
void fields(V& v, Of<V, NativeRefused>& refused) {
  v.text("text", refused.text, kReason);
  v.optional_hex("proof", refused.proof, kProofDigits);
}

template <typename V>
void fields(V& v, Of<V, NativeWaiting>& waiting) {
  v.text("text", waiting.text, kReason);
}

template <typename V>
void fields(V& v, Of<V, PrepareStore>& prepare) {
  v.number("round", prepare.round);
}

template <typename V>
void fields(V& v, Of<V, RoundComplete>& round) {
  v.number("round", round.round);
  v.number("group_rank", round.group_rank.value);
  v.number("group_world_size", round.group_world_size, 1);
  v.number("restart_count", round.restart_count);
  v.check(round.group_rank.value < round.group_world_size, "group_rank",
          "not below group_world_size");
  v.optional_object("workers", round.workers);
  v.optional_object("store", round.store);
  v.optional_number("life", round.life, 1);
  v.optional_number("generation", round.generation, 0, kMaxGeneration);
  v.optional_number("best_step", round.best_step);
}

template <typename V>
void fields(V& v, Of<V, RestartRound>& restart) {
  v.number("round", restart.round);
  // An older muster takes a restart for a notice as one that a node has asked for.
  bool for_notice = !V::kReads && restart.cause == RestartCause::Notice;
  RestartCause cause = for_notice ? RestartCause::Requested : restart.cause;
  v.one_of("cause", cause, kCauses);
  v.optional_flag("for_notice", for_notice);
  if constexpr (V::kReads) restart.cause = for_notice ? RestartCause::Notice : cause;
  v.object("who", restart.who);
  v.text("what", restart.what, kReason);
  v.optional_number("life", restart.life, 1);
  v.optional_number("restart_count", restart.restart_count);
}

template <typename V>
void fields(V& /*v*/, Of<V, RunClosed>& /*closed*/) {}

template <typename V>
void fields(V& v, Of<V, RunEnded>& ended) {
  fields_of_end(v, ended, kMessageFacts);
}

template <typename V>
void fields(V& v, Of<V, JoinRefused>& refused) {
  v.one_of("why", refused.why, kWhys);
  v.text("text", refused.text, kReason);
}

template <typename V>
void fields(V& v, Of<V, NotAMember>& lost) {
  v.optional_text("why", lost.why, kReportText);
}

template <typename V>
void fields(V& v, Of<V, Resumed>& resumed) {
  v.number("round", resumed.round, -1);
  v.number("generation", resumed.generation, 0, kMaxGeneration);
  v.number("life", resumed.life);
}

template <typename V>
void fields(V& v, Of<V, Rejoin>& rejoin) {
  v.number("round", rejoin.round, -1);
  v.number("life", rejoin.life);
  v.text("why", rejoin.why, kReason);
  v.optional_number("restart_count", rejoin.restart_count);
}

template <typename V>
void fields(V& v, Of<V, NativeReached>& reached) {
  v.flag("whole", reached.whole);
  v.optional_time("age_ns", reached.age);
  v.optional_hex("proof", reached.proof, kProofDigits);
}

template <typename V>
void fields(V& v, Of<V, NativeChallenge>& challenge) {
  v.hex("nonce", challenge.nonce, kProofDigits);
}

template <typename V>
void fields(V& v, Of<V, NodeAsked>& asked) {
  v.number("number", asked.number, 0, kMaxCount);
  v.one_of("what", asked.what, kQuestions);
  v.number("local_rank", asked.local_rank, 0, kMaxLocalWorldSize);
  if (asked.what != NodeAsked::What::Log) return;
  v.flag("from_stderr", asked.from_stderr);
  v.number("offset", asked.offset, std::numeric_limits<std::int64_t>::min() + 1, kMaxCount);
  v.number("attempt", asked.attempt);
}

template <typename V>
void fields(V& v, Of<V, Notice>& notice) {
  v.text("text", notice.text, kReportText);
}

template <typename V>
void fields(V& v, Of<V, PreemptionNotice>& notice) {
  v.number("round", notice.round);
  v.time("left_ns", notice.left, 0, kLongestWait.count());
  v.text("reason", notice.reason, kNoticeReason);
  std::size_t follow = notice.stops ? 1 : 0;
  v.one_of("follow", follow, kFollows);
  if constexpr (V::kReads) notice.stops = follow == 1;
  v.flag("this_node", notice.this_node);
  v.number("doomed", notice.doomed);
  v.each("nodes", notice.nodes, kMaxNoticeNodes,
         [](auto& node, auto& name) { node.text("name", name, kMaxNodeTextBytes); });
  v.each("ranks", notice.ranks, kMaxNoticeRanges, [](auto& range, auto& ranks) {
    range.number("first", ranks.first);
    range.number("last", ranks.second, ranks.first);
  });
}

}  // namespace muster
