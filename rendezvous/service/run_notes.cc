// What a run does, as lines for the log: one for each transition.

#include <algorithm>

#include "rendezvous/service/run_service.h"
#include "rendezvous/wire/printable_text.h"

namespace muster {
namespace {

constexpr std::size_t kJoinsNoted = 8;  // Of each run; the others are for who debugs.

/// A text from outside as a value of its own: between quotes, unless it is a single plain word.
std::string word(std::string_view text) {
  const bool bare = !text.empty() && text.size() <= kMaxLoggedTextBytes &&
                    std::all_of(text.begin(), text.end(), [](char c) {
                      return c > ' ' && c <= '~' && c != '"' && c != '=' && c != '\\';
                    });
  return bare ? std::string(text) : '"' + printable_text(text) + '"';
}

}  // namespace

void RunService::note(RunNote::Level level, std::string line) {
  effects_.emplace_back(RunNote{level, std::move(line)});
}

void RunService::note_forgotten(const Run& run) {
  note(RunNote::Level::Info, "run_forgotten run=" + word(run.id()));
}

void RunService::note_new_life(const Run& run) {
  note(RunNote::Level::Info, "run_begins_again run=" + word(run.id()));
}

void RunService::record(Run& run, RunEvent event, Instant now) {
  run.history.add(std::move(event), now, counters_);
}

void RunService::note_begin(Run& run, Instant now) {
  if (run.rendezvous->untouched() || std::exchange(run.noted_begin, true)) return;
  record(run, {.kind = RunEvent::Kind::Began, .round = run.rendezvous->round()}, now);
}

/// After the rendezvous has seen the join; of one that it refused, the answer goes to the node.
void RunService::note_join(Run& run, const NodeJoined& event, Instant now) {
  const NodeName* name = run.rendezvous->name_of(event.from);
  if (name == nullptr) return;
  if (!run.gathering) run.gathering = now;
  const auto level = run.joins++ < kJoinsNoted ? RunNote::Level::Info : RunNote::Level::Debug;
  note(level, "node_joined run=" + word(run.id()) + " node=" + word(to_string(*name)) +
                  " workers=" + std::to_string(event.local_world_size) +
                  " last_round=" + std::to_string(event.last_round));
  note_kept_out(run, *name);
  note_begin(run, now);
  RunEvent joined{.kind = RunEvent::Kind::NodeJoined, .round = run.rendezvous->round()};
  joined.node = to_string(*name);
  record(run, std::move(joined), now);
}

void RunService::note_gone(Run& run, const NodeGone& gone, Instant now) {
  const bool left = gone.cause == RestartCause::NodeLeft;
  RunEvent event{.kind = left ? RunEvent::Kind::NodeLeft : RunEvent::Kind::NodeLost,
                 .round = run.rendezvous->round()};
  event.node = to_string(gone.who);
  event.rank = gone.rank;
  event.text = gone.what;
  run.reports.remove(event.node);
  record(run, std::move(event), now);
  note(RunNote::Level::Info, std::string(left ? "node_left" : "node_lost") +
                                 " run=" + word(run.id()) + " node=" + word(to_string(gone.who)) +
                                 " rank=" + (gone.rank ? std::to_string(*gone.rank) : "-") +
                                 " why=\"" + printable_text(gone.what) + "\"");
}

/// A restart or a stop is noted as what it does to the run.
void RunService::note_operation(Run& run, const OperatorAsked& asked, Instant now) {
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
  note(RunNote::Level::Info, std::string(to_string(event.kind)) + " run=" + word(run.id()) +
                                 " node=" + word(asked.node) + " by=operator");
  record(run, std::move(event), now);
}

void RunService::note_kept_out(const Run& run, const NodeName& name) {
  const auto kept = run.rendezvous->kept_out(name);
  if (!kept) return;
  note(RunNote::Level::Info, "node_kept_out run=" + word(run.id()) +
                                 " node=" + word(to_string(name)) +
                                 " advice=\"`musterctl allow` lets it in again\"");
}

void RunService::note_held_back(const Run& run, const NodeHeldBack& held) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(held.wait).count();
  note(RunNote::Level::Warning,
       "node_held_back run=" + word(run.id()) + " node=" + word(to_string(held.who)) +
           " losses=" + std::to_string(held.losses) + " wait_seconds=" + std::to_string(seconds) +
           " advice=\"it is lost again and again: look at its network\"");
}

void RunService::note_skew(const Run& run, const ClockSkewSeen& seen) {
  note(RunNote::Level::Warning,
       "clock_skew run=" + word(run.id()) + " node=" + word(to_string(seen.who)) +
           " ahead_seconds=" + std::to_string(seen.microseconds / 1'000'000) +
           " advice=\"its heartbeats are read relative to that; synchronise clocks\"");
}

/// Before the actions are sent. Everybody is told the same restart: one line.
void RunService::note_restart(Run& run, const RendezvousActions& actions, Instant now) {
  for (const RendezvousAction& action : actions) {
    const auto* restart = std::get_if<RestartRound>(&action);
    if (restart == nullptr) continue;
    RunEvent event{.kind = RunEvent::Kind::RoundRestarts, .round = restart->round};
    const bool by_operator = restart->who == operator_name();  // No node: nothing to look up.
    if (!by_operator) {
      event.node = to_string(restart->who);
      event.rank = run.rendezvous->rank_of(restart->who);
    }
    event.cause = restart->cause;
    event.text = by_operator ? "an operator (" + restart->what + ")" : restart->what;
    record(run, std::move(event), now);
    return note(RunNote::Level::Info,
                "round_restarts run=" + word(run.id()) +
                    " round=" + std::to_string(restart->round) +
                    " cause=" + std::string(to_string(restart->cause)) +
                    " who=" + (by_operator ? "operator" : word(to_string(restart->who))) +
                    " what=\"" + printable_text(restart->what) +
                    "\" restarts=" + std::to_string(run.rendezvous->restarts_used()));
  }
}

/// A fault of this program, not of a node: it has cost this run, and the others go on.
void RunService::note_broken(Run& run, Instant now) {
  const auto& broken = run.rendezvous->broken();
  if (!broken || std::exchange(run.noted_broken, true)) return;
  RunEvent event{.kind = RunEvent::Kind::Broken, .round = run.rendezvous->round()};
  event.text = *broken;
  record(run, std::move(event), now);
  note(RunNote::Level::Error, "run_broken run=" + word(run.id()) + " invariant=\"" +
                                  printable_text(*broken) +
                                  "\" advice=\"please report this line: it is a fault of muster\"");
}

void RunService::note_recovery(Run& run, const RendezvousActions& actions, Instant now) {
  for (const RendezvousAction& action : actions) {
    const auto* recovered = std::get_if<RoundRecovered>(&action);
    if (recovered == nullptr) continue;
    note_begin(run, now);
    RunEvent event{
        .kind = recovered->whole ? RunEvent::Kind::RoundResumed : RunEvent::Kind::RoundNotResumed,
        .round = recovered->round};
    event.text = recovered->why;
    record(run, std::move(event), now);
    const std::string round = " run=" + word(run.id()) +
                              " round=" + std::to_string(recovered->round) +
                              " generation=" + std::to_string(recovered->generation);
    if (!recovered->whole) {
      note(RunNote::Level::Warning,
           "round_not_resumed" + round + " why=\"" + printable_text(recovered->why) + "\"");
      continue;
    }
    run.noted_round = recovered->round;  // It is complete, but not news.
    run.gathering.reset();
    note(RunNote::Level::Info, "round_resumed" + round +
                                   " nodes=" + std::to_string(run.rendezvous->participants()) +
                                   " restarts=" + std::to_string(run.rendezvous->restarts_used()));
  }
}

void RunService::note_progress(Run& run, Instant now) {
  const Rendezvous& rendezvous = *run.rendezvous;
  const std::string id = word(run.id());
  note_begin(run, now);
  note_broken(run, now);
  const auto phase = rendezvous.phase();
  const bool gathers =
      phase == Rendezvous::Phase::Gathering || phase == Rendezvous::Phase::Recovering;
  if (gathers && !run.gathering && rendezvous.members() > 0) run.gathering = now;
  if (phase == Rendezvous::Phase::Running && run.noted_round != rendezvous.round()) {
    run.noted_round = rendezvous.round();
    // In a first round everybody says it, and in all-muster rounds nobody looks.
    if (rendezvous.round() > 0) run.repeat_master = now + options_.master_patience;
    const Duration took = now - run.gathering.value_or(now);
    run.gathering.reset();
    RunEvent complete{.kind = RunEvent::Kind::RoundComplete, .round = rendezvous.round()};
    complete.took = took;
    complete.text = std::to_string(rendezvous.participants()) + " nodes, generation " +
                    std::to_string(rendezvous.generation());
    record(run, std::move(complete), now);
    note(RunNote::Level::Info,
         "round_complete run=" + id + " round=" + std::to_string(rendezvous.round()) +
             " nodes=" + std::to_string(rendezvous.participants()) + " took_ms=" +
             std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
             " generation=" + std::to_string(rendezvous.generation()));
  }
  if (!rendezvous.outcome()) run.noted_end = false;  // An outdated record may have had one.
  if (const auto& outcome = rendezvous.outcome(); outcome && !run.noted_end) {
    run.noted_end = true;
    RunEvent end{.kind = outcome->succeeded ? RunEvent::Kind::Succeeded : RunEvent::Kind::Failed,
                 .round = rendezvous.round()};
    if (outcome->who) {
      end.node = to_string(*outcome->who);
      end.rank = rendezvous.rank_of(*outcome->who);
    }
    end.text = outcome->why;
    record(run, std::move(end), now);
    record_end(run);
    note(RunNote::Level::Info, "run_ended run=" + id +
                                   " succeeded=" + (outcome->succeeded ? "true" : "false") +
                                   " who=" + (outcome->who ? word(to_string(*outcome->who)) : "-") +
                                   " why=\"" + printable_text(outcome->why) + "\"");
  } else if (rendezvous.closed() && !outcome && !run.noted_closed) {
    run.noted_closed = true;
    record(run, {.kind = RunEvent::Kind::Closed, .round = rendezvous.round()}, now);
    note(RunNote::Level::Info, "run_closed run=" + id + " by=torchrun");
  }
}

}  // namespace muster
