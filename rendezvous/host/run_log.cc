#include "rendezvous/host/run_log.h"

#include <algorithm>
#include <utility>

#include "base/printable_text.h"
#include "rendezvous/rounds/restart_ledger.h"

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

/// A number as a log value. Empty or negative: there is none.
std::string number_or_none(std::optional<std::int64_t> number) {
  return number.value_or(-1) < 0 ? "none" : std::to_string(*number);
}

/// What the restarts of a run have cost: their number, and of a run with budgets what these have
/// paid.
std::string restarts_fields(const HostedRun& run) {
  const RestartCosts& costs = run.rendezvous->restart_costs();
  std::string fields = " restarts=" + std::to_string(run.rendezvous->restarts_used());
  if (const auto budgets = run.rendezvous->restart_budgets())
    fields += " budgets=\"" + budgets_text(costs, *budgets) + "\"";
  if (costs.without_progress > 0)
    fields += " without_progress=" + std::to_string(costs.without_progress);
  return fields;
}

}  // namespace

void RunLog::write(LogLine::Level level, std::string line) {
  gate_.send(LogLine{level, std::move(line)});
}

/// A line about a run. A node can cause such lines without end, so further ones are for debugging
/// only, and the next line has their number.
void RunLog::write(LineLimit& limit, LogLine::Level level, std::string line, Instant now) {
  if (!limit.bucket.take(now)) {
    ++limit.left_out;
    level = LogLine::Level::Debug;
  } else if (limit.left_out > 0) {
    line += " left_out=" + std::to_string(std::exchange(limit.left_out, 0));
  }
  write(level, std::move(line));
}

void RunLog::forgotten(const HostedRun& run) {
  write(LogLine::Level::Info, "run_forgotten run=" + word(run.id()));
}

void RunLog::begins_again(HostedRun& run, Instant now) {
  write(run.round_lines, LogLine::Level::Info, "run_begins_again run=" + word(run.id()), now);
}

void RunLog::record(HostedRun& run, RunEvent event, Instant now) {
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

void RunLog::begins(HostedRun& run, Instant now, std::string text) {
  if (run.rendezvous->untouched() || std::exchange(run.logged.begin, true)) return;
  run.began_ms = wall_ms_;
  RunEvent began{.kind = RunEvent::Kind::Began, .round = run.rendezvous->round()};
  began.text = std::move(text);
  record(run, std::move(began), now);
}

/// Called after the rendezvous has handled the join. A refused join has no log line: the node gets
/// the reason.
void RunLog::joined(HostedRun& run, const NodeJoined& event, Instant now) {
  const NodeName* name = run.rendezvous->name_of(event.from);
  if (name == nullptr) return;
  if (!run.logged.gathering) run.logged.gathering = now;
  std::string line = "node_joined run=" + word(run.id()) + " node=" + word(to_string(*name)) +
                     " workers=" + std::to_string(event.local_world_size) +
                     " last_round=" + number_or_none(event.last_round);
  if (run.logged.joins++ < kJoinsLogged)
    write(run.node_lines, LogLine::Level::Info, std::move(line), now);
  else
    write(LogLine::Level::Debug, std::move(line));
  kept_out(run, *name, now);
  begins(run, now);
  RunEvent joined{.kind = RunEvent::Kind::NodeJoined, .round = run.rendezvous->round()};
  joined.node = to_string(*name);
  record(run, std::move(joined), now);
}

void RunLog::node_gone(HostedRun& run, const NodeGone& gone, Instant now) {
  const bool left = gone.cause == RestartCause::NodeLeft;
  RunEvent event{.kind = left ? RunEvent::Kind::NodeLeft : RunEvent::Kind::NodeLost,
                 .round = gone.round};
  event.node = to_string(gone.who);
  event.rank = gone.rank;
  event.text = gone.what;
  run.reports.remove(event.node);
  record(run, std::move(event), now);
  write(run.node_lines, LogLine::Level::Info,
        std::string(left ? "node_left" : "node_lost") + " run=" + word(run.id()) +
            " node=" + word(to_string(gone.who)) + " rank=" + number_or_none(gone.rank) +
            " why=\"" + printable_text(gone.what) + "\"",
        now);
}

/// A restart or a stop has no line of its own: its effect on the run has one.
void RunLog::operation(HostedRun& run, const OperatorAsked& asked, Instant now) {
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
  write(LogLine::Level::Info, std::string(to_string(event.kind)) + " run=" + word(run.id()) +
                                  " node=" + word(asked.node) + " by=operator");
  record(run, std::move(event), now);
}

void RunLog::record_node(HostedRun& run, RunEvent::Kind kind, const NodeName& who,
                         std::optional<int> rank, const std::string& text, Instant now) {
  RunEvent event{.kind = kind, .round = run.rendezvous->round()};
  event.node = to_string(who);
  event.rank = rank;
  event.text = text;
  record(run, std::move(event), now);
}

void RunLog::notice(HostedRun& run, const NoticeGiven& given, Instant now) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(given.left).count();
  record_node(run, RunEvent::Kind::NoticeGiven, given.who, given.rank,
              given.reason + " (in " + std::to_string(left) + " s" +
                  (given.by_operator ? ", by an operator)" : ")"),
              now);
  write(run.node_lines, LogLine::Level::Warning,
        "notice_given run=" + word(run.id()) + " node=" + word(to_string(given.who)) +
            " rank=" + number_or_none(given.rank) + " seconds=" + std::to_string(left) +
            " by=" + (given.by_operator ? "operator" : "node") + " reason=\"" +
            printable_text(given.reason) + "\"",
        now);
}

void RunLog::notice(HostedRun& run, const NodeAnsweredNotice& saved, Instant now) {
  record_node(run, RunEvent::Kind::NodeSaved, saved.who, saved.rank, {}, now);
  write(run.node_lines, LogLine::Level::Info,
        "node_saved run=" + word(run.id()) + " node=" + word(to_string(saved.who)) +
            " rank=" + number_or_none(saved.rank) + " round=" + std::to_string(saved.round),
        now);
}

void RunLog::notice(HostedRun& run, const NoticeOver& over, Instant now) {
  record_node(run, RunEvent::Kind::NoticeOver, over.who, over.rank, over.why, now);
  write(run.node_lines, LogLine::Level::Info,
        "notice_over run=" + word(run.id()) + " node=" + word(to_string(over.who)) +
            " rank=" + number_or_none(over.rank) + " why=\"" + printable_text(over.why) + "\"",
        now);
}

void RunLog::kept_out(HostedRun& run, const NodeName& name, Instant now) {
  const auto kept = run.rendezvous->kept_out(name);
  if (!kept) return;
  write(run.node_lines, LogLine::Level::Info,
        "node_kept_out run=" + word(run.id()) + " node=" + word(to_string(name)) +
            " advice=\"`musterctl allow` lets it in again\"",
        now);
}

void RunLog::held_back(HostedRun& run, const NodeHeldBack& held, Instant now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(held.wait).count();
  write(run.node_lines, LogLine::Level::Warning,
        "node_held_back run=" + word(run.id()) + " node=" + word(to_string(held.who)) +
            " losses=" + std::to_string(held.losses) + " wait_seconds=" + std::to_string(seconds) +
            (held.of_address ? " advice=\"agents at its address end again and again: look at why\""
                             : " advice=\"it is lost again and again: look at its network\""),
        now);
}

void RunLog::other_command(HostedRun& run, const CommandsDiffer& differ, Instant now) {
  write(run.node_lines, LogLine::Level::Warning,
        "commands_differ run=" + word(run.id()) + " node=" + word(to_string(differ.who)) +
            " other=" + word(to_string(differ.other)) +
            " advice=\"two jobs may use this run id: give each an --rdzv-id of its own\"",
        now);
}

void RunLog::clock_skew(HostedRun& run, const ClockSkewSeen& seen, Instant now) {
  write(run.node_lines, LogLine::Level::Warning,
        "clock_skew run=" + word(run.id()) + " node=" + word(to_string(seen.who)) +
            " ahead_seconds=" + std::to_string(seen.microseconds / 1'000'000) +
            " advice=\"its heartbeats are corrected by this; synchronise the clocks\"",
        now);
}

/// Called before the actions are sent. All nodes get the same restart, so it has one log line.
void RunLog::restart(HostedRun& run, const RendezvousActions& actions, Instant now) {
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
    return write(run.round_lines, LogLine::Level::Info,
                 "round_restarts run=" + word(run.id()) +
                     " round=" + std::to_string(restart->round) +
                     " cause=" + std::string(to_string(restart->cause)) +
                     " who=" + (by_operator ? "operator" : word(to_string(restart->who))) +
                     " what=\"" + printable_text(restart->what) + "\"" + restarts_fields(run),
                 now);
  }
}

/// The restart of the round has its own line, with another cause.
void RunLog::late_failure(HostedRun& run, const FailureCounted& failure, Instant now) {
  RunEvent event{.kind = RunEvent::Kind::RoundRestarts, .round = failure.round};
  event.node = to_string(failure.who);
  event.rank = run.rendezvous->rank_of(failure.who);
  event.cause = RestartCause::WorkersFailed;
  event.text = failure.what;
  record(run, std::move(event), now);
  write(run.round_lines, LogLine::Level::Info,
        "failure_counted run=" + word(run.id()) + " round=" + std::to_string(failure.round) +
            " who=" + word(to_string(failure.who)) + " what=\"" + printable_text(failure.what) +
            "\"" + restarts_fields(run),
        now);
}

/// A fault of this program, not of a node, has ended this run. The other runs go on.
void RunLog::broken(HostedRun& run, Instant now) {
  const auto& broken = run.rendezvous->broken();
  if (!broken || std::exchange(run.logged.broken, true)) return;
  RunEvent event{.kind = RunEvent::Kind::Broken, .round = run.rendezvous->round()};
  event.text = *broken;
  record(run, std::move(event), now);
  write(LogLine::Level::Error,
        "run_broken run=" + word(run.id()) + " invariant=\"" + printable_text(*broken) +
            "\" advice=\"please report this line: it is a fault of muster\"");
}

void RunLog::recovery(HostedRun& run, const RendezvousActions& actions, Instant now) {
  for (const RendezvousAction& action : actions) {
    const auto* recovered = std::get_if<RoundRecovered>(&action);
    if (recovered == nullptr) continue;
    begins(run, now);
    RunEvent event{
        .kind = recovered->whole ? RunEvent::Kind::RoundResumed : RunEvent::Kind::RoundNotResumed,
        .round = recovered->round};
    event.text = recovered->why;
    record(run, std::move(event), now);
    const std::string round = " run=" + word(run.id()) +
                              " round=" + std::to_string(recovered->round) +
                              " generation=" + std::to_string(recovered->generation);
    if (!recovered->whole) {
      write(run.round_lines, LogLine::Level::Warning,
            "round_not_resumed" + round + " why=\"" + printable_text(recovered->why) + "\"", now);
      continue;
    }
    run.logged.round = recovered->round;  // An earlier host has logged that it is complete.
    run.up_since = now;
    run.logged.gathering.reset();
    write(run.round_lines, LogLine::Level::Info,
          "round_resumed" + round + " nodes=" + std::to_string(run.rendezvous->participants()) +
              " restarts=" + std::to_string(run.rendezvous->restarts_used()),
          now);
  }
}

RunLog::News RunLog::progress(HostedRun& run, Instant now) {
  News news;
  const Rendezvous& rendezvous = *run.rendezvous;
  const std::string id = word(run.id());
  begins(run, now);
  broken(run, now);
  const auto phase = rendezvous.phase();
  const bool gathers =
      phase == Rendezvous::Phase::Gathering || phase == Rendezvous::Phase::Recovering;
  if (gathers && !run.logged.gathering && rendezvous.members() > 0) run.logged.gathering = now;
  if (phase == Rendezvous::Phase::Running && run.logged.round != rendezvous.round()) {
    run.logged.round = rendezvous.round();
    run.up_since = now;
    news.round_complete = true;
    const Duration took = now - run.logged.gathering.value_or(now);
    run.logged.gathering.reset();
    RunEvent complete{.kind = RunEvent::Kind::RoundComplete, .round = rendezvous.round()};
    complete.took = took;
    complete.text =
        std::to_string(rendezvous.participants()) +
        (rendezvous.participants() == 1 ? " node, generation " : " nodes, generation ") +
        std::to_string(rendezvous.generation());
    record(run, std::move(complete), now);
    write(run.round_lines, LogLine::Level::Info,
          "round_complete run=" + id + " round=" + std::to_string(rendezvous.round()) +
              " nodes=" + std::to_string(rendezvous.participants()) + " took_ms=" +
              std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
              " generation=" + std::to_string(rendezvous.generation()),
          now);
  }
  if (!rendezvous.outcome()) run.logged.end = false;  // An outdated record may have had an outcome.
  if (const auto& outcome = rendezvous.outcome(); outcome && !run.logged.end) {
    run.logged.end = true;
    RunEvent end{.kind = outcome->succeeded   ? RunEvent::Kind::Succeeded
                         : outcome->preempted ? RunEvent::Kind::Preempted
                                              : RunEvent::Kind::Failed,
                 .round = rendezvous.round()};
    if (outcome->who) {
      end.node = to_string(*outcome->who);
      end.rank = rendezvous.rank_of(*outcome->who);
    }
    end.text = outcome->why;
    end.hopeless = outcome->hopeless;
    record(run, std::move(end), now);
    run.ended_ms = wall_ms_;
    news.ended = true;
    write(run.round_lines, LogLine::Level::Info,
          "run_ended run=" + id + " succeeded=" + (outcome->succeeded ? "true" : "false") +
              (outcome->preempted ? " preempted=true" : "") +
              (outcome->hopeless ? " hopeless=true" : "") +
              " who=" + (outcome->who ? word(to_string(*outcome->who)) : "none") + " why=\"" +
              printable_text(outcome->why) + "\"",
          now);
  } else if (rendezvous.closed() && !outcome && !run.logged.closed) {
    run.logged.closed = true;
    record(run, {.kind = RunEvent::Kind::Closed, .round = rendezvous.round()}, now);
    write(run.round_lines, LogLine::Level::Info, "run_closed run=" + id + " by=torchrun", now);
  }
  return news;
}

}  // namespace muster
