#include "rendezvous/host/run_registry.h"

namespace muster {

HostedRun* RunRegistry::find(std::string_view key) const {
  const auto found = runs_.find(key);
  return found == runs_.end() ? nullptr : found->second.get();
}

HostedRun& RunRegistry::add(std::unique_ptr<HostedRun> run) {
  ++peers_[run->peer].runs;
  std::unique_ptr<HostedRun>& place = runs_[run->key];
  place = std::move(run);
  return *place;
}

void RunRegistry::erase(HostedRun& run) {
  set_deadline(run, std::nullopt);
  set_idle(run, std::nullopt);
  if (const auto peer = peers_.find(run.peer); peer != peers_.end() && --peer->second.runs == 0)
    peers_.erase(peer);
  if (const auto found = runs_.find(run.key); found != runs_.end()) runs_.erase(found);
}

bool RunRegistry::is_peer_full(const std::string& peer, const Limits& limits) const {
  const auto known = peers_.find(peer);
  return known != peers_.end() && known->second.runs >= limits.runs_per_peer;
}

bool RunRegistry::has_room(const std::string& peer, const Limits& limits) const {
  return !is_peer_full(peer, limits) && runs_.size() < limits.runs;
}

// A peer that has too many runs makes room with a run of its own.
HostedRun* RunRegistry::longest_idle(const std::string& peer, const Limits& limits) const {
  const ByTime& idle = is_peer_full(peer, limits) ? peers_.find(peer)->second.idle : idle_;
  return idle.empty() ? nullptr : find(idle.begin()->second);
}

void RunRegistry::move(ByTime& runs, const std::string& key, const std::optional<Instant>& from,
                       const std::optional<Instant>& to) {
  if (from) runs.erase({*from, key});
  if (to) runs.emplace(*to, key);
}

void RunRegistry::set_idle(HostedRun& run, std::optional<Instant> since) {
  if (run.idle == since) return;
  move(idle_, run.key, run.idle, since);
  move(peers_[run.peer].idle, run.key, run.idle, since);
  run.idle = since;
}

void RunRegistry::set_deadline(HostedRun& run, std::optional<Instant> deadline) {
  if (run.deadline == deadline) return;
  move(deadlines_, run.key, run.deadline, deadline);
  run.deadline = deadline;
}

std::optional<Instant> RunRegistry::next_deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

std::vector<std::string> RunRegistry::due(Instant now) const {
  std::vector<std::string> keys;
  for (const auto& [at, key] : deadlines_) {
    if (at > now) break;
    keys.push_back(key);
  }
  return keys;
}

}  // namespace muster
