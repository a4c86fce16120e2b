// NativeParticipant: reconnecting to the host, and what a silent host means for the workers.

#include <algorithm>
#include <utility>

#include "rendezvous/node/native_participant.h"

namespace muster {
namespace {

constexpr int kKeepAlivesPerLease = 3;
// A host with a shorter lease would make this node busy with keep-alives.
constexpr Duration kShortestLease = std::chrono::milliseconds(100);
constexpr Duration kLongestLease = std::chrono::hours(24);
constexpr Duration kMaxPause = std::chrono::seconds(2);
constexpr Duration kProbeLeast = std::chrono::milliseconds(100);
constexpr Duration kMaxProbe = std::chrono::milliseconds(500);
// How long after the end of the lease a node waits for the other nodes, which notice the silence a
// little later.
constexpr Duration kPeerPatience = std::chrono::seconds(1);

}  // namespace

std::string NativeParticipant::seconds_text_of(Duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

/// The host and what is the matter with it. `nobody`: the words for a host that does not answer.
std::string NativeParticipant::host_that(std::string_view nobody) const {
  using Found = ConnectFailed::Found;
  std::string text = "the rendezvous at " + options_.host_text + " ";
  if (!up_ && found_ == Found::Refusal) return text + "does not take this node back";
  if (!up_ && found_ == Found::NoWay) return text + "cannot be reached from here";
  return text.append(nobody);
}

std::string NativeParticipant::latest_attempt() const {
  return up_ || last_error_.empty() ? std::string() : " (the latest attempt: " + last_error_ + ")";
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
  if (const auto give_up = gives_up()) also(give_up->at);
  also(finish_until_);
  also(farewell_until_);
  if (up_ && phase_ == Phase::Joining) also(reminder_.next());
  return next;
}

// --- the connection ------------------------------------------------------------------------------

void NativeParticipant::on(const Connected& event) {
  connecting_ = false;
  up_ = true;
  resuming_ = false;
  welcome_ = event.welcome;
  proxied_ = event.proxied;
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

// The host's lease decides when a node is lost, whatever --rdzv-conf lease of this node says. So it
// also decides when this node stops its workers: earlier would be for nothing, and later would be
// beside the next round.
void NativeParticipant::learn_lease() {
  const Duration own = options_.settings.lease;
  lease_ = std::clamp(welcome_.lease.value_or(own), kShortestLease, kLongestLease);
  round_lease_ = std::max(round_lease_, lease_);
  if (!welcome_.lease || *welcome_.lease == own || std::exchange(lease_logged_, true)) return;
  // The difference is a warning only if the user has given a lease.
  print("the rendezvous at " + options_.host_text + " takes a node for lost after " +
            seconds_text_of(*welcome_.lease) + ": that counts, and not --rdzv-conf lease=" +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(own).count()) +
            " of this node",
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
  const Duration most = std::min(kMaxPause, lease_ / 2);
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
  found_ = ConnectFailed::Found::Nobody;
  if (phase_ == Phase::Finished && !finish_until_)
    finish_until_ = now_ + options_.settings.read_timeout;
  if (lost_since_) return;
  told_errors_ = 0;
  lost_since_ = since;
  lost_why_ = why;
  const auto limit = absence_limit();
  print("lost the rendezvous at " + options_.host_text + " (" + why + "): connecting again" +
        (limit ? " for " + seconds_text_of(limit->time) : std::string()) +
        (phase_ == Phase::Running ? "; the workers go on" : ""));
}

void NativeParticipant::on(const ConnectFailed& event) {
  connecting_ = false;
  // A host that answers and refuses this node, for example because its certificate has expired, is
  // not away. Without this line, people would learn the reason when the job fails.
  if (event.why == ConnectFailed::Why::NoAnswer && event.text != last_error_ &&
      phase_ == Phase::Running && told_errors_ < kMaxToldErrors && !event.text.empty()) {
    ++told_errors_;
    print("cannot come back to the rendezvous at " + options_.host_text + ": " + event.text);
  }
  last_error_ = event.text;
  found_ = event.found;
  pause_before_next_try();
  // A proxy or a tunnel that is away refuses, too, and the host behind it may be well.
  if (event.why == ConnectFailed::Why::NobodyListens && !proxied_) {
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
  return std::clamp(lease_ / 10, kProbeLeast, kMaxProbe);
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
      print(host_that("does not answer") +
            ", and the nodes of this round reach each other: training goes on" + latest_attempt());
    return;
  }
  if (silent >= lease_ + kPeerPatience) fence();
}

void NativeParticipant::fence() {
  phase_ = Phase::Outside;
  if (std::exchange(reach_answer_, std::nullopt))
    actions_.push_back(SetReachAnswer{round_.generation, std::nullopt});
  const std::string time = seconds_text_of(now_ - host_evidence());
  using Found = ConnectFailed::Found;
  const std::string all = "all the other nodes of its round have answered for " + time +
                          ", and they may go on without it";
  std::string why;
  if (up_ || found_ == Found::Nobody)
    why = "this node is cut off: neither the rendezvous at " + options_.host_text + " nor " + all;
  else
    why = (found_ == Found::Refusal ? "" : "this node is cut off: ") + host_that({}) +
          latest_attempt() + ", not " + all;
  actions_.push_back(RestartWorkers{why});
}

// --- limits --------------------------------------------------------------------------------------

/// How long the workers may go on without the host, or a join may take without an answer of it.
/// Empty: without a limit.
std::optional<NamedLimit> NativeParticipant::absence_limit() const {
  const RendezvousSettings& settings = options_.settings;
  const NamedLimit read{settings.read_timeout, "read_timeout"};
  if (phase_ == Phase::Finished) return read;
  std::optional<NamedLimit> absence;
  if (settings.host_absent)
    absence = NamedLimit{*settings.host_absent, "host_absent"};
  else if (!welcome_.outlives_nodes)
    absence = read;
  if (phase_ != Phase::Joining) return absence;
  const NamedLimit join{settings.run.join_timeout, "join_timeout"};
  return welcome_.outlives_nodes || !absence || join.time < absence->time ? join : absence;
}

/// When this node gives up, if nothing changes: the host is away, or a host that does not answer
/// keeps this node from joining.
std::optional<NativeParticipant::GiveUp> NativeParticipant::gives_up() const {
  const bool joining = phase_ == Phase::Joining;
  if (!joining && phase_ != Phase::Running) return std::nullopt;
  // A connection alone is no answer: a host that hangs still accepts.
  if (up_ && !(joining && welcome_.resumes)) return std::nullopt;
  const auto limit = absence_limit();
  if (!limit || (!up_ && !lost_since_)) return std::nullopt;
  const Instant silent_since = lost_since_.value_or(heard_);
  const bool by_join = limit->key == "join_timeout";
  GiveUp result{later(by_join ? std::max(silent_since, joined_at_) : silent_since, limit->time),
                *limit};
  // A host that answers applies join_timeout itself, and says which nodes are missing.
  if (up_) result.at = std::max(result.at, heard_ + lease_ / 2);
  return result;
}

std::string NativeParticipant::unreachable_text(const NamedLimit& limit) const {
  const std::string host = "the rendezvous at " + options_.host_text;
  const std::string tried = " (tried for " + seconds_text_of(limit.time) + "; --rdzv-conf " +
                            std::string(limit.key) + "=SECONDS changes that)";
  if (!lost_since_)
    return host + " has accepted this node's connection and answers nothing" + tried;
  const bool refuses = !up_ && found_ == ConnectFailed::Found::Refusal;
  return host + " was lost (" + lost_why_ + ") and " +
         (refuses ? "does not take this node back: " : "cannot be reached again: ") +
         (up_ ? "it answers nothing" : last_error_) + tried;
}

void NativeParticipant::keep_limits() {
  if (farewell_until_ && now_ >= *farewell_until_) return end({.succeeded = false});
  if (phase_ == Phase::Finished) {
    if (finish_until_ && now_ >= *finish_until_) end_without_host();
    return;
  }
  const auto give_up = gives_up();
  if (!give_up || now_ < give_up->at) return;
  std::string why = unreachable_text(give_up->limit);
  if (phase_ == Phase::Joining) return fail(std::move(why));
  end({.succeeded = false, .why = std::move(why)});
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
