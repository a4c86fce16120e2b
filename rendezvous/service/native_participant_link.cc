// NativeParticipant: reconnecting to the host, and what a silent host means for the workers.

#include <algorithm>
#include <utility>

#include "rendezvous/service/native_participant.h"

namespace muster {
namespace {

constexpr int kKeepAlivesPerLease = 3;
// A host with a shorter lease would make this node busy with keep-alives.
constexpr Duration kShortestLease = std::chrono::milliseconds(100);
constexpr Duration kPauseMost = std::chrono::seconds(2);
constexpr Duration kProbeLeast = std::chrono::milliseconds(100);
constexpr Duration kProbeMost = std::chrono::milliseconds(500);
// How long after the end of the lease a node waits for the other nodes, which notice the silence a
// little later.
constexpr Duration kPeerPatience = std::chrono::seconds(1);

}  // namespace

std::string NativeParticipant::seconds_text_of(Duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

std::optional<Instant> NativeParticipant::next_deadline() const {
  if (phase_ == Phase::Over) return std::nullopt;
  std::optional<Instant> next;
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  if (up_) also(keep_alive_at_);
  if (up_ && welcome_.resumes) also(heard_ + lease_);
  if (!up_ && !connecting_) also(next_try_);
  if (!up_) also(now_ + lease_ / kKeepAlivesPerLease);
  if (phase_ == Phase::Running && welcome_.resumes) {
    // The next instants at which the same evidence leads to another decision.
    const Instant evidence = host_evidence();
    const Instant suspects = evidence + lease_ / 2;
    if (suspects > now_)
      also(suspects);
    else
      also(std::max(ask_at_, now_ + kProbeLeast));
    for (const Duration silent : {lease_, lease_ + kPeerPatience})
      if (evidence + silent > now_) also(evidence + silent);
  }
  also(finish_until_);
  also(farewell_until_);
  return next;
}

// --- the connection ------------------------------------------------------------------------------

void NativeParticipant::on(const Connected& event) {
  connecting_ = false;
  up_ = true;
  resuming_ = false;
  welcome_ = event.welcome;
  heard_ = now_;
  refused_.reset();
  answered_ = false;
  learn_lease();
  keep_alive_at_ = now_ + lease_ / kKeepAlivesPerLease;
  const bool tells = !failure_.empty();
  if (phase_ == Phase::Joining && !(tells && welcome_.resumes)) return ask_to_join();
  if (!has_round_) return;
  if (welcome_.resumes) return resume();
  // The host is an older muster without resume: all nodes must meet in a new round.
  lost_since_.reset();
  if (phase_ == Phase::Finished) return end_without_host();
  if (phase_ == Phase::Running) end_round("the rendezvous had been lost, and is back");
}

// The host's lease decides when a node is lost, whatever --rdzv-conf lease of this node says.
void NativeParticipant::learn_lease() {
  const Duration own = options_.settings.lease;
  lease_ = std::min(own, std::max(welcome_.lease.value_or(own), kShortestLease));
  if (!welcome_.lease || *welcome_.lease == own || std::exchange(lease_logged_, true)) return;
  // The difference is a warning only if the user has given a lease.
  print("the rendezvous at " + options_.host_text + " takes a node for lost after " +
            seconds_text_of(*welcome_.lease) + ": that counts, and not --rdzv-conf lease=" +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(own).count()) +
            " of this node, which keeps alive by the shorter of the two",
        options_.settings.lease_given);
}

void NativeParticipant::on(const ConnectionBroke& event) {
  if (up_) lose_connection(event.why, now_);
}

/// The host has answered more than the welcome: this connection works.
void NativeParticipant::note_answer() {
  answered_ = true;
  pause_ = kPauseFirst;
  if (resuming_) return;
  lost_since_.reset();
  finish_until_.reset();
}

/// The next try comes after a pause, and later ones after longer pauses.
void NativeParticipant::pause_before_next_try() {
  const Duration most = std::min(kPauseMost, lease_ / 2);
  next_try_ = now_ + jittered(std::min(pause_, most));
  pause_ = std::min(2 * pause_, most);
}

void NativeParticipant::lose_connection(const std::string& why, Instant since) {
  up_ = resuming_ = false;
  if (answered_)
    next_try_ = now_;
  else
    pause_before_next_try();
  last_error_ = why;
  if (phase_ == Phase::Finished && !finish_until_)
    finish_until_ = now_ + options_.settings.read_timeout;
  if (lost_since_) return;
  lost_since_ = since;
  lost_why_ = why;
  const auto limit = absence_limit();
  print("lost the rendezvous at " + options_.host_text + " (" + why + "): connecting again" +
        (limit ? " for " + seconds_text_of(*limit) : std::string()) +
        (phase_ == Phase::Running ? "; the workers go on" : ""));
}

void NativeParticipant::on(const ConnectFailed& event) {
  connecting_ = false;
  last_error_ = event.text;
  pause_before_next_try();
  if (event.why == ConnectFailed::Why::NobodyListens) {
    // The refusal counts only within a lease of the earlier evidence: after a longer silence
    // another round may have begun before the host's process ended.
    if (now_ - host_evidence() < lease_) refused_ = now_;
    // A host that was an agent is not started again. So it is useless to wait for it, except for
    // the workers' sake: they may train on.
    if (phase_ == Phase::Finished && !welcome_.outlives_nodes) return end_without_host();
    if (phase_ == Phase::Joining && lost_since_ && !welcome_.outlives_nodes &&
        !options_.settings.host_absent)
      return fail("the rendezvous at " + options_.host_text + " was lost (" + lost_why_ +
                  "), and its host has ended: " + event.text);
  }
  if (event.why != ConnectFailed::Why::NotWanted) return;
  if (phase_ == Phase::Finished) return end_without_host();
  const std::string why = "the rendezvous at " + options_.host_text + " was lost (" + lost_why_ +
                          ") and refuses us now: " + event.text;
  if (phase_ == Phase::Joining) return fail(why);
  end({.succeeded = false, .why = why});
}

/// This process was paused for `length`. Answers of the host may still wait to be read, and nothing
/// was tried meanwhile. So no silence and no limit counts this time.
void NativeParticipant::forgive_pause(Duration length) {
  for (std::optional<Instant>* since : {&lost_since_, &finish_until_, &farewell_until_})
    if (*since) *since = later(**since, length);
  joined_at_ = later(joined_at_, length);
  if (up_) heard_ = now_;
  if (refused_) refused_ = now_;
  if (reached_) reached_ = now_;
  for (auto& [rank, at] : peers_)
    at = now_;
}

void NativeParticipant::keep_link() {
  if (up_ && welcome_.resumes && now_ >= heard_ + lease_) {
    actions_.push_back(Disconnect{});
    lose_connection("it has answered nothing for " + seconds_text_of(lease_), heard_);
  }
  if (up_ && now_ >= keep_alive_at_) {
    keep_alive_at_ = now_ + lease_ / kKeepAlivesPerLease;
    send(KeptAlive{});
  }
  if (up_ || connecting_ || !next_try_ || now_ < *next_try_) return;
  connecting_ = true;
  actions_.push_back(Connect{});
}

/// A random pause between half of `most` and `most`, so that nodes which lost the host together do
/// not reconnect at the same instant.
Duration NativeParticipant::jittered(Duration most) {
  options_.random += 0x9e3779b97f4a7c15ULL;  // splitmix64
  std::uint64_t bits = options_.random;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  bits ^= bits >> 31;
  const Duration::rep half = most.count() / 2;
  if (half <= 0) return most;
  return Duration(half + static_cast<Duration::rep>(bits % static_cast<std::uint64_t>(half)));
}

// --- evidence: is this node cut off? -------------------------------------------------------------

Instant NativeParticipant::host_evidence() const {
  return refused_ ? std::max(heard_, *refused_) : heard_;
}

Duration NativeParticipant::probe_interval() const {
  return std::clamp(lease_ / 10, kProbeLeast, kProbeMost);
}

void NativeParticipant::on(const PeerReached& event) {
  if (phase_ == Phase::Running && event.generation == round_.generation && event.group_rank > 0 &&
      event.group_rank < round_.group_world_size)
    peers_[event.group_rank] = now_;
}

void NativeParticipant::on(const ReachAnswered& event) {
  if (phase_ != Phase::Running || event.generation != round_.generation || !event.whole) return;
  const Instant at = now_ - std::min(event.age, lease_);
  reached_ = reached_ ? std::max(*reached_, at) : at;
}

/// When the nodes of the round last reached each other. At that time no other round had begun with
/// any of them. Empty: not within the last lease.
std::optional<Instant> NativeParticipant::whole_at() const {
  const int world = round_.group_world_size;
  std::optional<Instant> at;
  if (world == 1) {
    // A job with one node has no other node to ask. In an elastic job, nodes outside of this round
    // may begin another one.
    if (options_.settings.run.max_nodes == 1) at = now_;
  } else if (round_.group_rank.value != 0) {
    at = reached_;
  } else if (peers_.size() == static_cast<std::size_t>(world) - 1) {
    at = std::min_element(peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
           return a.second < b.second;
         })->second;
  }
  return at && now_ - *at < lease_ ? at : std::nullopt;
}

void NativeParticipant::weigh_evidence() {
  const bool runs = phase_ == Phase::Running && welcome_.resumes;
  const Duration silent = now_ - host_evidence();
  const bool suspects = runs && silent >= lease_ / 2;
  const bool rank_0 = runs && round_.group_rank.value == 0;
  if (rank_0 || reach_answer_) {
    const bool host_is_away = runs && !up_ && refused_ && now_ - *refused_ < lease_;
    std::optional<Instant> whole;
    if (rank_0 && host_is_away)
      whole = refused_;
    else if (rank_0 && suspects)
      whole = whole_at();
    if (whole != std::exchange(reach_answer_, whole))
      actions_.push_back(SetReachAnswer{round_.generation, whole});
  }
  if (!suspects) {
    if (up_) trains_alone_ = false;
    return;
  }
  const bool asks = now_ >= ask_at_;
  if (asks) ask_at_ = now_ + probe_interval();
  if (asks && !rank_0 && round_.store && round_.group_world_size > 1) {
    actions_.push_back(AskReach{*round_.store, {round_.generation, round_.group_rank.value}});
  }
  if (silent < lease_) return;
  if (whole_at()) {
    if (!std::exchange(trains_alone_, true))
      print("the rendezvous at " + options_.host_text +
            " does not answer, and the nodes of this round reach each other: training goes on");
    return;
  }
  if (silent >= lease_ + kPeerPatience) fence();
}

void NativeParticipant::fence() {
  phase_ = Phase::Outside;
  if (std::exchange(reach_answer_, std::nullopt))
    actions_.push_back(SetReachAnswer{round_.generation, std::nullopt});
  actions_.push_back(
      RestartWorkers{"this node is cut off: neither the rendezvous at " + options_.host_text +
                     " nor all the other nodes of its round have answered for " +
                     seconds_text_of(now_ - host_evidence()) + ", and they may go on without it"});
}

// --- limits --------------------------------------------------------------------------------------

/// How long the workers may go on without the host. Empty: without a limit.
std::optional<Duration> NativeParticipant::absence_limit() const {
  const RendezvousSettings& settings = options_.settings;
  if (phase_ == Phase::Finished) return settings.read_timeout;
  if (phase_ == Phase::Joining && welcome_.outlives_nodes) return settings.run.join_timeout;
  if (settings.host_absent) return settings.host_absent;
  if (welcome_.outlives_nodes) return std::nullopt;
  return settings.read_timeout;
}

std::string NativeParticipant::unreachable_text(Duration limit, std::string_view option) const {
  return "the rendezvous at " + options_.host_text + " was lost (" + lost_why_ +
         ") and cannot be reached again: " + last_error_ + " (tried for " + seconds_text_of(limit) +
         "; --rdzv-conf " + std::string(option) + "=SECONDS changes that)";
}

void NativeParticipant::keep_limits() {
  if (farewell_until_ && now_ >= *farewell_until_) return end({.succeeded = false});
  if (phase_ == Phase::Finished) {
    if (finish_until_ && now_ >= *finish_until_) end_without_host();
    return;
  }
  const auto limit = absence_limit();
  if (!limit || !lost_since_ || up_) return;
  const bool joining = phase_ == Phase::Joining;
  const bool by_join = joining && welcome_.outlives_nodes;
  const Instant since = by_join ? std::max(*lost_since_, joined_at_) : *lost_since_;
  if (now_ - since < *limit) return;
  const bool by_absence = options_.settings.host_absent && !by_join;
  std::string why = unreachable_text(*limit, by_join      ? "join_timeout"
                                             : by_absence ? "host_absent"
                                                          : "read_timeout");
  if (joining) return fail(std::move(why));
  if (phase_ == Phase::Running) end({.succeeded = false, .why = std::move(why)});
}

/// Ends with success although the host is lost. A host announces the end of the job before it
/// exits, so this one was killed or its machine is gone.
void NativeParticipant::end_without_host() {
  print(
      "lost the rendezvous at " + options_.host_text + " (" + lost_why_ +
      ") before the end of the job was known: the workers of this node have succeeded, and nothing "
      "can be said of the other nodes");
  end({.succeeded = true});
}

}  // namespace muster
