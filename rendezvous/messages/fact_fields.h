// The fields of facts that stand in messages and in the records of runs. Private: for the codecs.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "rendezvous/messages/text_cuts.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/node_report.h"
#include "rendezvous/rounds/rendezvous_events.h"

namespace muster {

inline constexpr std::array<std::string_view, 3> kScalePolicies = {"now", "at-restart", "never"};
inline constexpr std::array<std::string_view, 3> kOnNotices = {"auto", "stop", "shrink"};

/// What a reader accepts. A message comes from a muster node. A record also has what torchrun nodes
/// have sent, and the host's additions to it.
struct FactLimits {
  std::size_t address_bytes;
  std::int64_t least_number;  // Of a name.
  std::int64_t least_port;
  TextRule why;
  bool max_nodes_follow_min;  // Reports a wrong pair as a wrong max_nodes.
};
inline constexpr FactLimits kMessageFacts{.address_bytes = kMaxAddressBytes,
                                          .least_number = 0,
                                          .least_port = 1,
                                          .why = kReason,
                                          .max_nodes_follow_min = false};
/// A reason from outside and the host's addition to it, in characters of up to three bytes.
inline constexpr std::size_t kMaxRecordedText = 8 * kMaxNativeTextBytes;
inline constexpr FactLimits kRecordedFacts{.address_bytes = kMaxRecordedText,
                                           .least_number = std::numeric_limits<std::int64_t>::min(),
                                           .least_port = 0,
                                           .why = kMaxRecordedText,
                                           .max_nodes_follow_min = true};

template <typename V>
void fields(V& v, Of<V, NodeName>& name, const FactLimits& limits = kMessageFacts) {
  v.text("addr", name.addr, limits.address_bytes);
  v.number("pid", name.pid, limits.least_number);
  v.number("local_id", name.local_id, limits.least_number);
}

template <typename V>
void fields(V& v, Of<V, StoreAddress>& store, const FactLimits& limits = kMessageFacts) {
  v.text("addr", store.addr, limits.address_bytes);
  v.number("port", store.port, limits.least_port);
}

template <typename V>
void fields(V& v, Of<V, RunSettings>& run, const FactLimits& limits = kMessageFacts) {
  v.number("min_nodes", run.min_nodes, 1);
  v.number("max_nodes", run.max_nodes, limits.max_nodes_follow_min ? run.min_nodes : 1);
  v.number("max_restarts", run.max_restarts);
  v.one_of("scale_policy", run.scale_policy, kScalePolicies);
  v.time("join_timeout_ns", run.join_timeout);
  v.time("last_call_timeout_ns", run.last_call_timeout);
  v.optional_one_of("on_notice", run.on_notice, kOnNotices);
  if (!v.has("restart_policy", run.restart_policy.has_value())) return;
  std::string policy = run.restart_policy ? to_string(*run.restart_policy) : std::string();
  v.text("restart_policy", policy, kMaxPolicyBytes);
  if constexpr (V::kReads) run.restart_policy = read_restart_policy(policy);
  v.check(run.restart_policy.has_value(), "restart_policy", "it is no policy of restarts");
}

/// How a run ended: RunEnded or RunOutcome.
template <typename V, typename End>
void fields_of_end(V& v, End& end, const FactLimits& limits) {
  v.flag("succeeded", end.succeeded);
  v.optional_object("who", end.who, limits);
  v.text("why", end.why, limits.why);
  v.optional_flag("preempted", end.preempted);
  v.optional_number("without_progress", end.without_progress);
  v.optional_flag("hopeless", end.hopeless);
}

template <typename V>
void fields(V& v, Of<V, FailureReport>& failure) {
  v.number("round", failure.round);
  v.number("local_rank", failure.local_rank, 0, kMaxLocalWorldSize);
  v.number("rank", failure.rank);
  v.number("pid", failure.pid);
  v.text("exit", failure.exit, kReportText);
  v.optional_text("because", failure.because, kReportText);
  v.optional_text("message", failure.message, kReportText);
  v.optional_text("stderr_end", failure.stderr_end, kReportEnd);
}

}  // namespace muster
