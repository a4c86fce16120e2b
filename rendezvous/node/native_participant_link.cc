// NativeParticipant: reconnecting to the host, and what a silent host means for the workers.

#include <algorithm>
#include <utility>

#include "rendezvous/node/native_participant.h"

namespace muster {
namespace {

constexpr Duration kProbeLeast = std::chrono::milliseconds(100);
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
  also(link_.next_deadline(now_));
  if (phase_ == Phase::Running && link_.welcome().resumes) {
    // The next instants at which the same evidence leads to another decision.
    const Instant evidence = link_.evidence();
    const Instant suspects = evidence + link_.lease() / 2;
    if (suspects > now_)
      also(suspects);
    else
      also(std::max(peers_.next_question(), now_ + kProbeLeast));
    for (const Duration silent : {link_.lease(), link_.lease() + kPeerPatience})
      if (evidence + silent > now_) also(evidence + silent);
  }
  if (const auto give_up = gives_up()) also(give_up->at);
  if (phase_ == Phase::Running) also(notices_.next_deadline(now_));
  also(finish_until_);
  also(farewell_until_);
  if (link_.is_up() && phase_ == Phase::Joining) also(reminder_.next());
  return next;
}

// --- the connection ------------------------------------------------------------------------------

void NativeParticipant::on(const Connected& event) {
  link_.connected(event.welcome, event.proxied, now_);
  resuming_ = false;
  learn_lease();
  const bool tells = !failure_.empty();
  if (phase_ == Phase::Joining && !(tells && link_.welcome().resumes)) return ask_to_join();
  if (!has_round_) return;
  if (link_.welcome().resumes) return resume();
  // The host is an older muster without resume: all nodes must meet in a new round.
  link_.back();
  if (phase_ == Phase::Finished) return end_without_host();
  if (phase_ == Phase::Running) end_round({.why = "the rendezvous had been lost, and is back"});
}

void NativeParticipant::learn_lease() {
  const Duration own = options_.settings.lease;
  const std::optional<Duration>& of_host = link_.welcome().lease;
  round_lease_ = std::max(round_lease_, link_.lease());
  if (!of_host || *of_host == own || std::exchange(lease_logged_, true)) return;
  // The difference is a warning only if the user has given a lease.
  print("the rendezvous at " + options_.host_text + " takes a node for lost after " +
            seconds_text_of(*of_host) + ": that counts, and not --rdzv-conf lease=" +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(own).count()) +
            " of this node",
        options_.settings.lease_given);
}

void NativeParticipant::on(const ConnectionBroke& event) {
  if (link_.is_up()) lose_connection(event.why, now_);
}

/// The host has answered more than the welcome: this connection works.
void NativeParticipant::note_answer() {
  link_.answered();
  if (resuming_) return;
  link_.back();
  finish_until_.reset();
}

void NativeParticipant::lose_connection(const std::string& why, Instant since) {
  resuming_ = false;
  const bool is_new = link_.lost(why, since, now_);
  if (phase_ == Phase::Finished && !finish_until_)
    finish_until_ = now_ + options_.settings.read_timeout;
  if (!is_new) return;
  const auto limit = absence_limit();
  print("lost the rendezvous at " + options_.host_text + " (" + why + "): connecting again" +
        (limit ? " for " + seconds_text_of(limit->time) : std::string()) +
        (phase_ == Phase::Running ? "; the workers go on" : ""));
}

void NativeParticipant::on(const ConnectFailed& event) {
  // A host that answers and refuses this node, for example because its certificate has expired, is
  // not away. Without this line, people would learn the reason when the job fails.
  if (event.why == ConnectFailed::Why::NoAnswer && phase_ == Phase::Running &&
      link_.take_news(event.text))
    print("cannot come back to the rendezvous at " + options_.host_text + ": " + event.text);
  link_.try_failed(event.text, event.found, now_);
  // A proxy or a tunnel that is away refuses, too, and the host behind it may be well.
  if (event.why == ConnectFailed::Why::NobodyListens && !link_.is_proxied()) {
    link_.refused(now_);
    // A host that was an agent is not started again. So it is useless to wait for it, except for
    // the workers' sake: they may train on.
    if (phase_ == Phase::Finished && !link_.welcome().outlives_nodes) return end_without_host();
    if (phase_ == Phase::Joining && link_.lost_since() && !link_.welcome().outlives_nodes &&
        !options_.settings.host_absent)
      return fail("the rendezvous at " + options_.host_text + " was lost (" + link_.lost_why() +
                  "), and its host has ended: " + event.text);
  }
  if (event.why != ConnectFailed::Why::NotWanted) return;
  if (phase_ == Phase::Finished) return end_without_host();
  const std::string why = "the rendezvous at " + options_.host_text + " was lost (" +
                          link_.lost_why() + ") and refuses us now: " + event.text;
  if (phase_ == Phase::Joining) return fail(why);
  end({.succeeded = false, .why = why});
}

/// This process was paused for `length`. Answers of the host may still wait to be read, and nothing
/// was tried meanwhile. So no silence and no limit counts this time.
void NativeParticipant::extend_after_pause(Duration length) {
  for (std::optional<Instant>* until : {&finish_until_, &farewell_until_})
    if (*until) *until = later(**until, length);
  joined_at_ = later(joined_at_, length);
  link_.forgive(length, now_);
  peers_.forgive(now_);
}

void NativeParticipant::keep_link() {
  if (link_.is_silent(now_)) {
    actions_.push_back(Disconnect{});
    lose_connection("it has answered nothing for " + seconds_text_of(link_.lease()),
                    link_.heard_at());
  }
  if (link_.take_keep_alive(now_)) send(KeptAlive{});
  if (link_.take_connect(now_)) actions_.push_back(Connect{});
}

// --- evidence: is this node cut off? -------------------------------------------------------------

void NativeParticipant::on(const PeerReached& event) {
  if (phase_ == Phase::Running && event.generation == round_.generation && event.group_rank > 0 &&
      event.group_rank < round_.group_world_size)
    peers_.asked_by(event.group_rank, now_);
}

void NativeParticipant::on(const ReachAnswered& event) {
  if (phase_ != Phase::Running || event.generation != round_.generation || !event.whole) return;
  peers_.answered(now_ - std::min(event.age, link_.lease()));
}

void NativeParticipant::check_evidence() {
  const bool runs = phase_ == Phase::Running && link_.welcome().resumes;
  const Duration lease = link_.lease();
  const Duration silent = now_ - link_.evidence();
  const bool suspects = runs && silent >= lease / 2;
  const bool rank_0 = runs && round_.group_rank.value == 0;
  const auto whole_at = [&] {
    const bool may_grow = options_.settings.run.max_nodes != 1;
    return peers_.whole_at(round_, may_grow, lease, now_);
  };
  if (rank_0 || peers_.has_answer()) {
    const auto refused = runs && !link_.is_up() ? link_.refused_lately(now_) : std::nullopt;
    std::optional<Instant> whole;
    if (rank_0 && refused)
      whole = refused;
    else if (rank_0 && suspects)
      whole = whole_at();
    if (peers_.set_answer(whole)) actions_.push_back(SetReachAnswer{round_.generation, whole});
  }
  if (!suspects) {
    if (link_.is_up()) peers_.end_alone();
    return;
  }
  const bool asks = peers_.take_question(lease, now_);
  if (asks && !rank_0 && round_.store && round_.group_world_size > 1) {
    actions_.push_back(AskReach{*round_.store, {round_.generation, round_.group_rank.value}});
  }
  if (silent < lease) return;
  if (whole_at()) {
    if (peers_.begin_alone())
      print(link_.host_that("does not answer") +
            ", and the nodes of this round reach each other: training goes on" +
            link_.latest_try());
    return;
  }
  if (silent >= lease + kPeerPatience) fence();
}

void NativeParticipant::fence() {
  phase_ = Phase::Outside;
  if (peers_.set_answer(std::nullopt))
    actions_.push_back(SetReachAnswer{round_.generation, std::nullopt});
  const std::string time = seconds_text_of(now_ - link_.evidence());
  using Found = ConnectFailed::Found;
  const std::string all = "all the other nodes of its round have answered for " + time +
                          ", and they may go on without it";
  std::string why;
  if (link_.is_up() || link_.found() == Found::Nobody)
    why = "this node is cut off: neither the rendezvous at " + options_.host_text + " nor " + all;
  else
    why = (link_.found() == Found::Refusal ? "" : "this node is cut off: ") + link_.host_that({}) +
          link_.latest_try() + ", not " + all;
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
  else if (!link_.welcome().outlives_nodes)
    absence = read;
  if (phase_ != Phase::Joining) return absence;
  const NamedLimit join{settings.run.join_timeout, "join_timeout"};
  return link_.welcome().outlives_nodes || !absence || join.time < absence->time ? join : absence;
}

/// When this node gives up, if nothing changes: the host is away, or a host that does not answer
/// keeps this node from joining.
std::optional<NativeParticipant::GiveUp> NativeParticipant::gives_up() const {
  const bool joining = phase_ == Phase::Joining;
  if (!joining && phase_ != Phase::Running) return std::nullopt;
  // A connection alone is no answer: a host that hangs still accepts.
  if (link_.is_up() && !(joining && link_.welcome().resumes)) return std::nullopt;
  const auto limit = absence_limit();
  if (!limit || (!link_.is_up() && !link_.lost_since())) return std::nullopt;
  const Instant silent_since = link_.lost_since().value_or(link_.heard_at());
  const bool by_join = limit->key == "join_timeout";
  GiveUp result{later(by_join ? std::max(silent_since, joined_at_) : silent_since, limit->time),
                *limit};
  // A host that answers applies join_timeout itself, and says which nodes are missing.
  if (link_.is_up()) result.at = std::max(result.at, link_.heard_at() + link_.lease() / 2);
  return result;
}

std::string NativeParticipant::unreachable_text(const NamedLimit& limit) const {
  const std::string host = "the rendezvous at " + options_.host_text;
  const std::string tried = " (tried for " + seconds_text_of(limit.time) + "; --rdzv-conf " +
                            std::string(limit.key) + "=SECONDS changes that)";
  if (!link_.lost_since())
    return host + " has accepted this node's connection and answers nothing" + tried;
  const bool refuses = !link_.is_up() && link_.found() == ConnectFailed::Found::Refusal;
  return host + " was lost (" + link_.lost_why() + ") and " +
         (refuses ? "does not take this node back: " : "cannot be reached again: ") +
         (link_.is_up() ? "it answers nothing" : link_.last_error()) + tried;
}

void NativeParticipant::keep_limits() {
  if (const auto& own = notices_.own(); own && goes_alone()) {
    std::string why = "this node will go (" + own->reason + ")";
    if (link_.is_up()) send(NodeLeft{});
    return end({.succeeded = false, .why = std::move(why), .preempted = true});
  }
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
      "lost the rendezvous at " + options_.host_text + " (" + link_.lost_why() +
      ") before the end of the job was known: the workers of this node have succeeded, and nothing "
      "can be said of the other nodes");
  end({.succeeded = true});
}

}  // namespace muster
