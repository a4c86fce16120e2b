// What a run does, as lines for the log: one for each transition.

#include <algorithm>

#include "rendezvous/wire/run_service.h"

namespace muster {
namespace {

constexpr std::size_t kJoinsNoted = 8;  // Of each run; the others are for who debugs.
constexpr std::size_t kMaxNotedBytes = 512;

// Ids and reasons come from peers: one line stays one line, and a quoted text ends at its quote.
std::string plain(std::string_view text) {
  std::string out(text.substr(0, kMaxNotedBytes));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '"') c = '\'';
  return out;
}

std::string_view to_string(RestartCause cause) {
  switch (cause) {
    case RestartCause::WorkersFailed:
      return "workers_failed";
    case RestartCause::NodeLost:
      return "node_lost";
    case RestartCause::NodeLeft:
      return "node_left";
    case RestartCause::NodeJoined:
      return "node_joined";
    case RestartCause::Requested:
      return "requested";
  }
  return "unknown";
}

}  // namespace

void RunService::note(RunNote::Level level, std::string line) {
  effects_.emplace_back(RunNote{level, std::move(line)});
}

void RunService::note_join(Run& run, const NodeJoined& event, Instant now) {
  if (!run.gathering) run.gathering = now;
  const auto level = run.joins++ < kJoinsNoted ? RunNote::Level::Info : RunNote::Level::Debug;
  const NodeName* name = run.rendezvous->name_of(event.from);
  note(level, "node_joined run=" + plain(run.id()) +
                  " node=" + plain(to_string(name != nullptr ? *name : event.name)) +
                  " workers=" + std::to_string(event.local_world_size) +
                  " last_round=" + std::to_string(event.last_round));
}

void RunService::note_gone(const Run& run, const NodeGone& gone) {
  note(RunNote::Level::Info,
       std::string(gone.cause == RestartCause::NodeLeft ? "node_left" : "node_lost") +
           " run=" + plain(run.id()) + " node=" + plain(to_string(gone.who)) + " rank=" +
           (gone.rank ? std::to_string(*gone.rank) : "-") + " why=\"" + plain(gone.what) + "\"");
}

void RunService::note_skew(const Run& run, const ClockSkewSeen& seen) {
  note(RunNote::Level::Warning,
       "clock_skew run=" + plain(run.id()) + " node=" + plain(to_string(seen.who)) +
           " ahead_seconds=" + std::to_string(seen.microseconds / 1'000'000) +
           " advice=\"its heartbeats are read relative to that; synchronise clocks\"");
}

/// Before the actions are sent. Everybody is told the same restart: one line.
void RunService::note_restart(const Run& run, const RendezvousActions& actions) {
  for (const RendezvousAction& action : actions) {
    const auto* restart = std::get_if<RestartRound>(&action);
    if (restart == nullptr) continue;
    return note(RunNote::Level::Info,
                "round_restarts run=" + plain(run.id()) +
                    " round=" + std::to_string(restart->round) +
                    " cause=" + std::string(to_string(restart->cause)) +
                    " who=" + plain(to_string(restart->who)) + " what=\"" + plain(restart->what) +
                    "\" restarts=" + std::to_string(run.rendezvous->restarts_used()));
  }
}

void RunService::note_progress(Run& run, Instant now) {
  const Rendezvous& rendezvous = *run.rendezvous;
  const std::string id = plain(run.id());
  const auto phase = rendezvous.phase();
  if (phase == Rendezvous::Phase::Gathering && !run.gathering && rendezvous.members() > 0)
    run.gathering = now;
  if (phase == Rendezvous::Phase::Running && run.noted_round != rendezvous.round()) {
    run.noted_round = rendezvous.round();
    // In a first round everybody says it, and in all-muster rounds nobody looks.
    if (rendezvous.round() > 0) run.repeat_master = now + options_.master_patience;
    const Duration took = now - run.gathering.value_or(now);
    run.gathering.reset();
    note(RunNote::Level::Info,
         "round_complete run=" + id + " round=" + std::to_string(rendezvous.round()) +
             " nodes=" + std::to_string(rendezvous.participants()) + " took_ms=" +
             std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  }
  if (const auto& outcome = rendezvous.outcome(); outcome && !run.noted_end) {
    run.noted_end = true;
    note(RunNote::Level::Info,
         "run_ended run=" + id + " succeeded=" + (outcome->succeeded ? "true" : "false") +
             " who=" + (outcome->who ? plain(to_string(*outcome->who)) : "-") + " why=\"" +
             plain(outcome->why) + "\"");
  } else if (rendezvous.closed() && !outcome && !run.noted_closed) {
    run.noted_closed = true;
    note(RunNote::Level::Info, "run_closed run=" + id + " by=torchrun");
  }
}

}  // namespace muster
