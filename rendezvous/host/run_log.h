// What is logged of runs, and the events of their histories: one for each transition of a run.
//
// Pure: a line is an effect, and leaves in its place among the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/host/durability_gate.h"
#include "rendezvous/host/hosted_run.h"
#include "rendezvous/host/run_effect.h"
#include "rendezvous/rounds/rendezvous_events.h"
#include "rendezvous/rounds/run_history.h"

namespace muster {

class RunLog {
 public:
  /// `wall_ms` is the latest wall-clock time seen. Both outlive the log.
  RunLog(DurabilityGate& gate, const std::int64_t& wall_ms) : gate_(gate), wall_ms_(wall_ms) {}

  /// What the last call of progress() has logged for the first time.
  struct News {
    bool round_complete = false;
    bool ended = false;
  };
  /// Called after everything that can change a run.
  News progress(HostedRun& run, Instant now);

  /// `text`: for people, empty if the run is new.
  void begins(HostedRun& run, Instant now, std::string text = {});
  void begins_again(HostedRun& run, Instant now);
  void forgotten(const HostedRun& run);
  void joined(HostedRun& run, const NodeJoined& event, Instant now);
  void node_gone(HostedRun& run, const NodeGone& gone, Instant now);
  void held_back(HostedRun& run, const NodeHeldBack& held, Instant now);
  void other_command(HostedRun& run, const CommandsDiffer& differ, Instant now);
  void clock_skew(HostedRun& run, const ClockSkewSeen& seen, Instant now);
  void operation(HostedRun& run, const OperatorAsked& asked, Instant now);
  void notice(HostedRun& run, const NoticeGiven& given, Instant now);
  void notice(HostedRun& run, const NodeAnsweredNotice& saved, Instant now);
  void notice(HostedRun& run, const NoticeOver& over, Instant now);
  void late_failure(HostedRun& run, const FailureCounted& failure, Instant now);
  void restart(HostedRun& run, const RendezvousActions& actions, Instant now);
  void recovery(HostedRun& run, const RendezvousActions& actions, Instant now);

  /// A line about no run.
  void write(LogLine::Level level, std::string line);
  const RunCounters& counters() const { return counters_; }

 private:
  void write(LineLimit& limit, LogLine::Level level, std::string line, Instant now);
  void record(HostedRun& run, RunEvent event, Instant now);
  void record_node(HostedRun& run, RunEvent::Kind kind, const NodeName& who,
                   std::optional<int> rank, const std::string& text, Instant now);
  void kept_out(HostedRun& run, const NodeName& name, Instant now);
  void broken(HostedRun& run, Instant now);

  DurabilityGate& gate_;
  const std::int64_t& wall_ms_;
  RunCounters counters_;
};

}  // namespace muster
