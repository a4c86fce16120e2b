// RunService: log lines and history events, one for each transition of a run.

#include <algorithm>

#include "base/printable_text.h"
#include "rendezvous/host/run_service.h"

namespace muster {
namespace {

constexpr std::size_t kJoinsLogged = 8;  // Joins logged at info in each run. Later ones: debug.

/// A text from outside as a log value: in quotes, unless it is a single plain word.
std::string word(std::string_view text) {
  const bool bare = !text.empty() && text.size() <= kMaxLoggedTextBytes &&
                    std::all_of(text.begin(), text.end(), [](char c) {
                      return c > ' ' && c <= '~' && c != '"' && c != '=' && c != '\\';
                    });
  return bare ? std::string(text) : '"' + printable_text(text) + '"';
}

}  // namespace

void RunService::log(LogLine::Level level, std::string line) {
  gate_.send(LogLine{level, std::move(line)});
}

/// A line about a run. A node can cause such lines without end, so further ones are for debugging
/// only, and the next line has their number.
void RunService::log(LineLimit& limit, LogLine::Level level, std::string line, Instant now) {
  if (!limit.bucket.take(now)) {
    ++limit.left_out;
    level = LogLine::Level::Debug;
  } else if (limit.left_out > 0) {
    line += " left_out=" + std::to_string(std::exchange(limit.left_out, 0));
  }
  log(level, std::move(line));
}

void RunService::log_forgotten(const Run& run) {
  log(LogLine::Level::Info, "run_forgotten run=" + word(run.id()));
}

void RunService::log_new_life(Run& run, Instant now) {
  log(run.round_lines, LogLine::Level::Info, "run_begins_again run=" + word(run.id()), now);
}

void RunService::record(Run& run, RunEvent event, Instant now) {
  const bool had_failed = run.history.first_failure().has_value();
  run.history.add(std::move(event), now, counters_);
  const auto& failure = run.history.first_failure();
  if (had_failed || !failure) return;
  run.first_failure = RecordedFailure{.kind = failure->kind,
                                      .at_ms = wall_ms_,
                                      .round = failure->round,
                                      .node = failure->node,
                                      .rank = failure->rank,
                                      .cause = failure->cause,
                                      .text = failure->text};
  run.rendezvous->record_again();  // The node may have had no rank: then nothing else has changed.
}

void RunService::log_begin(Run& run, Instant now) {
  if (run.rendezvous->untouched() || std::exchange(run.logged_begin, true)) return;
  record(run, {.kind = RunEvent::Kind::Began, .round = run.rendezvous->round()}, now);
}

/// Called after the rendezvous has handled the join. A refused join has no log line: the node gets
/// the reason.
void RunService::log_join(Run& run, const NodeJoined& event, Instant now) {
  const NodeName* name = run.rendezvous->name_of(event.from);
  if (name == nullptr) return;
  if (!run.gathering) run.gathering = now;
  std::string line = "node_joined run=" + word(run.id()) + " node=" + word(to_string(*name)) +
                     " workers=" + std::to_string(event.local_world_size) +
                     " last_round=" + std::to_string(event.last_round);
  if (run.joins++ < kJoinsLogged)
    log(run.node_lines, LogLine::Level::Info, std::move(line), now);
  else
    log(LogLine::Level::Debug, std::move(line));
  log_kept_out(run, *name, now);
  log_begin(run, now);
  RunEvent joined{.kind = RunEvent::Kind::NodeJoined, .round = run.rendezvous->round()};
  joined.node = to_string(*name);
  record(run, std::move(joined), now);
}

void RunService::log_gone(Run& run, const NodeGone& gone, Instant now) {
  const bool left = gone.cause == RestartCause::NodeLeft;
  RunEvent event{.kind = left ? RunEvent::Kind::NodeLeft : RunEvent::Kind::NodeLost,
                 .round = gone.round};
  event.node = to_string(gone.who);
  event.rank = gone.rank;
  event.text = gone.what;
  run.reports.remove(event.node);
  record(run, std::move(event), now);
  log(run.node_lines, LogLine::Level::Info,
      std::string(left ? "node_left" : "node_lost") + " run=" + word(run.id()) + " node=" +
          word(to_string(gone.who)) + " rank=" + (gone.rank ? std::to_string(*gone.rank) : "-") +
          " why=\"" + printable_text(gone.what) + "\"",
      now);
}

/// A restart or a stop has no line of its own: its effect on the run has one.
void RunService::log_operation(Run& run, const OperatorAsked& asked, Instant now) {
  using What = OperatorAsked::What;
  RunEvent event{.round = run.rendezvous->round()};
  switch (asked.what) {
    case What::Restart:
    case What::Stop:
      return;
    case What::Drain:
      event.kind = RunEvent::Kind::NodeDrained;
      break;
    case What::Exclude:
      event.kind = RunEvent::Kind::NodeExcluded;
      break;
    case What::Allow:
      event.kind = RunEvent::Kind::NodeAllowed;
      break;
  }
  event.node = asked.node;
  event.text = "by an operator";
  log(LogLine::Level::Info, std::string(to_string(event.kind)) + " run=" + word(run.id()) +
                                " node=" + word(asked.node) + " by=operator");
  record(run, std::move(event), now);
}

void RunService::log_kept_out(Run& run, const NodeName& name, Instant now) {
  const auto kept = run.rendezvous->kept_out(name);
  if (!kept) return;
  log(run.node_lines, LogLine::Level::Info,
      "node_kept_out run=" + word(run.id()) + " node=" + word(to_string(name)) +
          " advice=\"`musterctl allow` lets it in again\"",
      now);
}

void RunService::log_held_back(Run& run, const NodeHeldBack& held, Instant now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(held.wait).count();
  log(run.node_lines, LogLine::Level::Warning,
      "node_held_back run=" + word(run.id()) + " node=" + word(to_string(held.who)) +
          " losses=" + std::to_string(held.losses) + " wait_seconds=" + std::to_string(seconds) +
          (held.of_address ? " advice=\"agents at its address end again and again: look at why\""
                           : " advice=\"it is lost again and again: look at its network\""),
      now);
}

void RunService::log_other_command(Run& run, const CommandsDiffer& differ, Instant now) {
  log(run.node_lines, LogLine::Level::Warning,
      "commands_differ run=" + word(run.id()) + " node=" + word(to_string(differ.who)) +
          " other=" + word(to_string(differ.other)) +
          " advice=\"two jobs may use this run id: give each an --rdzv-id of its own\"",
      now);
}

void RunService::log_skew(Run& run, const ClockSkewSeen& seen, Instant now) {
  log(run.node_lines, LogLine::Level::Warning,
      "clock_skew run=" + word(run.id()) + " node=" + word(to_string(seen.who)) +
          " ahead_seconds=" + std::to_string(seen.microseconds / 1'000'000) +
          " advice=\"its heartbeats are corrected by this; synchronise the clocks\"",
      now);
}

/// Called before the actions are sent. All nodes get the same restart, so it has one log line.
void RunService::log_restart(Run& run, const RendezvousActions& actions, Instant now) {
  for (const RendezvousAction& action : actions) {
    const auto* restart = std::get_if<RestartRound>(&action);
    if (restart == nullptr) continue;
    RunEvent event{.kind = RunEvent::Kind::RoundRestarts, .round = restart->round};
    const bool by_operator = restart->who == operator_name();  // The operator is no node.
    if (!by_operator) {
      event.node = to_string(restart->who);
      event.rank = run.rendezvous->rank_of(restart->who);
    }
    event.cause = restart->cause;
    event.text = by_operator ? "an operator (" + restart->what + ")" : restart->what;
    record(run, std::move(event), now);
    return log(run.round_lines, LogLine::Level::Info,
               "round_restarts run=" + word(run.id()) + " round=" + std::to_string(restart->round) +
                   " cause=" + std::string(to_string(restart->cause)) +
                   " who=" + (by_operator ? "operator" : word(to_string(restart->who))) +
                   " what=\"" + printable_text(restart->what) +
                   "\" restarts=" + std::to_string(run.rendezvous->restarts_used()),
               now);
  }
}

/// The restart of the round has its own line, with another cause.
void RunService::log_late_failure(Run& run, const FailureCounted& failure, Instant now) {
  RunEvent event{.kind = RunEvent::Kind::RoundRestarts, .round = failure.round};
  event.node = to_string(failure.who);
  event.rank = run.rendezvous->rank_of(failure.who);
  event.cause = RestartCause::WorkersFailed;
  event.text = failure.what;
  record(run, std::move(event), now);
  log(run.round_lines, LogLine::Level::Info,
      "failure_counted run=" + word(run.id()) + " round=" + std::to_string(failure.round) +
          " who=" + word(to_string(failure.who)) + " what=\"" + printable_text(failure.what) +
          "\" restarts=" + std::to_string(run.rendezvous->restarts_used()),
      now);
}

/// A fault of this program, not of a node, has ended this run. The other runs go on.
void RunService::log_broken(Run& run, Instant now) {
  const auto& broken = run.rendezvous->broken();
  if (!broken || std::exchange(run.logged_broken, true)) return;
  RunEvent event{.kind = RunEvent::Kind::Broken, .round = run.rendezvous->round()};
  event.text = *broken;
  record(run, std::move(event), now);
  log(LogLine::Level::Error, "run_broken run=" + word(run.id()) + " invariant=\"" +
                                 printable_text(*broken) +
                                 "\" advice=\"please report this line: it is a fault of muster\"");
}

void RunService::log_recovery(Run& run, const RendezvousActions& actions, Instant now) {
  for (const RendezvousAction& action : actions) {
    const auto* recovered = std::get_if<RoundRecovered>(&action);
    if (recovered == nullptr) continue;
    log_begin(run, now);
    RunEvent event{
        .kind = recovered->whole ? RunEvent::Kind::RoundResumed : RunEvent::Kind::RoundNotResumed,
        .round = recovered->round};
    event.text = recovered->why;
    record(run, std::move(event), now);
    const std::string round = " run=" + word(run.id()) +
                              " round=" + std::to_string(recovered->round) +
                              " generation=" + std::to_string(recovered->generation);
    if (!recovered->whole) {
      log(run.round_lines, LogLine::Level::Warning,
          "round_not_resumed" + round + " why=\"" + printable_text(recovered->why) + "\"", now);
      continue;
    }
    run.logged_round = recovered->round;  // An earlier host has logged that it is complete.
    run.gathering.reset();
    log(run.round_lines, LogLine::Level::Info,
        "round_resumed" + round + " nodes=" + std::to_string(run.rendezvous->participants()) +
            " restarts=" + std::to_string(run.rendezvous->restarts_used()),
        now);
  }
}

void RunService::log_progress(Run& run, Instant now) {
  const Rendezvous& rendezvous = *run.rendezvous;
  const std::string id = word(run.id());
  log_begin(run, now);
  log_broken(run, now);
  const auto phase = rendezvous.phase();
  const bool gathers =
      phase == Rendezvous::Phase::Gathering || phase == Rendezvous::Phase::Recovering;
  if (gathers && !run.gathering && rendezvous.members() > 0) run.gathering = now;
  if (phase == Rendezvous::Phase::Running && run.logged_round != rendezvous.round()) {
    run.logged_round = rendezvous.round();
    // In a first round rank 0 always publishes its address. In a round without torchrun nodes no
    // node reads it.
    if (rendezvous.round() > 0) run.repeat_master = now + options_.master_patience;
    const Duration took = now - run.gathering.value_or(now);
    run.gathering.reset();
    RunEvent complete{.kind = RunEvent::Kind::RoundComplete, .round = rendezvous.round()};
    complete.took = took;
    complete.text = std::to_string(rendezvous.participants()) + " nodes, generation " +
                    std::to_string(rendezvous.generation());
    record(run, std::move(complete), now);
    log(run.round_lines, LogLine::Level::Info,
        "round_complete run=" + id + " round=" + std::to_string(rendezvous.round()) +
            " nodes=" + std::to_string(rendezvous.participants()) + " took_ms=" +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
            " generation=" + std::to_string(rendezvous.generation()),
        now);
  }
  if (!rendezvous.outcome()) run.logged_end = false;  // An outdated record may have had an outcome.
  if (const auto& outcome = rendezvous.outcome(); outcome && !run.logged_end) {
    run.logged_end = true;
    RunEvent end{.kind = outcome->succeeded ? RunEvent::Kind::Succeeded : RunEvent::Kind::Failed,
                 .round = rendezvous.round()};
    if (outcome->who) {
      end.node = to_string(*outcome->who);
      end.rank = rendezvous.rank_of(*outcome->who);
    }
    end.text = outcome->why;
    record(run, std::move(end), now);
    run.ended_ms = wall_ms_;
    note_failure_report(run);
    record_end(run);
    log(run.round_lines, LogLine::Level::Info,
        "run_ended run=" + id + " succeeded=" + (outcome->succeeded ? "true" : "false") +
            " who=" + (outcome->who ? word(to_string(*outcome->who)) : "-") + " why=\"" +
            printable_text(outcome->why) + "\"",
        now);
  } else if (rendezvous.closed() && !outcome && !run.logged_closed) {
    run.logged_closed = true;
    record(run, {.kind = RunEvent::Kind::Closed, .round = rendezvous.round()}, now);
    log(run.round_lines, LogLine::Level::Info, "run_closed run=" + id + " by=torchrun", now);
  }
}

}  // namespace muster
