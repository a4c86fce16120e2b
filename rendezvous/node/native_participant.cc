#include "rendezvous/node/native_participant.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

std::string why_restart(const RestartRound& message) {
  const std::string who = to_string(message.who);
  switch (message.cause) {
    case RestartCause::WorkersFailed:
      return "on node " + who + " " + message.what;
    case RestartCause::NodeLost:
    case RestartCause::NodeLeft:
      return "node " + who + " is gone (" + message.what + ")";
    case RestartCause::NodeJoined:
      return "node " + who + " wants to join";
    case RestartCause::Notice:
      if (message.who == operator_name()) return message.what;
      return "node " + who + ": " + message.what;
    case RestartCause::Requested:
      break;
  }
  if (message.who == operator_name()) return "an operator wants a restart: " + message.what;
  return "a restart was asked for by node " + who + ": " + message.what;
}

}  // namespace

NativeParticipant::NativeParticipant(Options options)
    : options_(std::move(options)),
      link_({.lease = options_.settings.lease,
             .host_text = options_.host_text,
             .random = options_.random}) {}

NativeParticipant::Actions NativeParticipant::step(const Event& event, Instant now) {
  const Instant before = std::exchange(now_, now);
  actions_.clear();
  if (phase_ == Phase::Over) return {};
  if (now - before > link_.lease() / 2) extend_after_pause(now - before);
  std::visit([this](const auto& e) { on(e); }, event);
  if (phase_ != Phase::Over) keep_link();
  if (phase_ != Phase::Over) check_evidence();
  if (phase_ != Phase::Over) keep_limits();
  remind();
  return std::exchange(actions_, {});
}

// --- events from the agent -----------------------------------------------------------------------

void NativeParticipant::on(const JoinAsked&) {
  phase_ = Phase::Joining;
  joined_at_ = now_;
  if (attached()) ask_to_join();
}

void NativeParticipant::ask_to_join() {
  tell_last_step();
  NodeJoined join = options_.node;
  join.proxied = link_.is_proxied();
  join.last_round = latest_.round();
  join.life = latest_.life();
  join.generation = latest_.generation();
  join.restart_count = latest_.restart_count();
  exchange_.reset();  // This join tells the host that no workers start here for the old exchange.
  send(std::move(join));
  send_own_notice();
}

void NativeParticipant::resume() {
  NodeResumed event;
  event.join = options_.node;
  event.join.proxied = link_.is_proxied();
  event.join.lease = round_lease_;
  event.join.last_round = round_.round;
  event.join.life = latest_.life();
  event.join.generation = round_.generation;
  event.join.restart_count = latest_.restart_count();
  const bool succeeded = phase_ == Phase::Finished && !farewell_until_;
  event.state = phase_ == Phase::Running ? NodeResumed::State::Running
                : succeeded              ? NodeResumed::State::Finished
                                         : NodeResumed::State::Stopped;
  event.group_rank = round_.group_rank.value;
  event.group_world_size = round_.group_world_size;
  event.restart_count = round_.restart_count;
  event.workers = round_.workers;
  event.store = round_.store;
  event.failure = failure_;
  event.hung = failure_hung_ && !failure_.empty();
  event.progressed = progress_.progressed();
  event.step = progress_.step();
  progress_.mark_sent();
  resuming_ = true;
  finish_unsent_ = farewell_until_.has_value();  // A resume does not say that the node gives up.
  send(std::move(event));
  send_own_notice();
}

void NativeParticipant::on(const WorkersHaveFailed& event) {
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Outside;
  failure_ = event.what;
  failure_hung_ = event.hung;
  if (attached()) {
    tell_last_step();  // What the failure costs depends on it.
    return send(WorkersFailed{{}, round_.round, failure_, failure_hung_});
  }
  // The host may answer the earlier resume with Rejoin: the round has ended without this failure.
  if (link_.is_up()) return resume();
  print(failure_ + ", but " + link_.host_that("is away") +
        ": this node reports that when it is back, and starts no worker before" +
        link_.latest_try());
}

void NativeParticipant::on(const ProgressMade& event) {
  // Workers that are being stopped may still take a step.
  if (phase_ != Phase::Running && phase_ != Phase::Outside) return;
  if (progress_.advance(event.step, phase_ == Phase::Running)) tell_progress();
}

void NativeParticipant::tell_progress() {
  if (!attached() || !link_.welcome().takes_progress) return;  // Otherwise the resume says it.
  progress_.mark_sent();
  send(NodeProgressed{{}, round_.round, progress_.step()});
}

/// How far the workers have come when the round ends: those of the next one must get further.
void NativeParticipant::tell_last_step() {
  if (progress_.is_unsent()) tell_progress();
}

void NativeParticipant::on(const PartFinished& event) {
  if (!event.succeeded && !link_.is_up())  // The failure cannot be sent, and no answer can come.
    return end(
        {.succeeded = false, .why = link_.host_that("cannot be reached") + link_.latest_try()});
  phase_ = Phase::Finished;
  if (attached())
    send(
        NodeFinished{{}, has_round_ ? round_.round : latest_.round(), event.succeeded, event.what});
  finish_unsent_ = resuming_;
  if (!event.succeeded) {
    failure_ = event.what;
    farewell_until_ = now_ + options_.settings.close_timeout;
    return;
  }
  if (through_store_) actions_.push_back(EnterExitBarrier{});
  if (link_.is_up()) return;
  finish_until_ = now_ + options_.settings.read_timeout;
  if (link_.welcome().outlives_nodes)
    print("the workers of this node have finished; " + link_.host_that("is away") +
          ": waiting for it for " + seconds_text_of(options_.settings.read_timeout) +
          link_.latest_try());
}

void NativeParticipant::on(const LeaveAsked&) {
  if (link_.is_up()) send(NodeLeft{});
  phase_ = Phase::Over;
}

void NativeParticipant::on(const StoreHosted& event) {
  if (link_.is_up()) send(StoreReady{{}, event.round, options_.node.name.addr, event.port});
}

void NativeParticipant::on(const StoreFailed& event) {
  if (link_.is_up()) send(NodeFinished{{}, event.round, false, event.why});
  fail(event.why);
}

void NativeParticipant::on(const ExchangeDone& event) {
  if (phase_ != Phase::Joining || !exchange_ || !exchanging(event.round)) return;
  through_store_ = true;
  const RoundComplete round = std::move(*exchange_);
  exchange_.reset();
  begin_round(round);
}

void NativeParticipant::on(const ExchangeFailed& event) {
  if (phase_ != Phase::Joining || !exchanging(event.round)) return;
  exchange_.reset();
  const std::string what = "round " + std::to_string(event.round) +
                           " was complete, but came to nothing: " + event.trouble;
  if (failed_exchanges_ < kMaxFailedRounds) {
    print(what + "; asking for another one");
    if (link_.is_up()) send(RestartRequested{{}, event.trouble, event.round});
    return;
  }
  if (link_.is_up()) send(NodeFinished{{}, event.round, false, what});
  fail(what + ", as the " + std::to_string(failed_exchanges_ - 1) + " rounds before it");
}

void NativeParticipant::on(const ExitBarrierLeft&) {
  if (phase_ == Phase::Finished) end({.succeeded = true});
}

// --- messages from the host ----------------------------------------------------------------------

void NativeParticipant::on(const MessageReceived& event) {
  link_.heard(now_);
  std::visit([this](const auto& message) { handle(message); }, event.message);
  note_answer();
}

void NativeParticipant::handle(const NativeRefused& message) {
  end({.succeeded = false, .why = message.text});
}

void NativeParticipant::handle(const NativeWaiting& message) {
  if (phase_ == Phase::Joining) {
    print("waiting for the other nodes: " + message.text);
    waiting_for_ = message.text;
    reminder_.begin(now_);
  }
  if (phase_ == Phase::Finished)
    print("the workers of this node have finished; waiting for the other nodes: " + message.text);
}

/// Repeats for whom this node waits, until when, and what they must run.
void NativeParticipant::remind() {
  if (phase_ != Phase::Joining || exchange_) return reminder_.end();
  if (!link_.is_up()) return;  // Other sentences say that the host is away.
  const auto waited = reminder_.due(now_);
  if (!waited) return;
  const Duration limit = options_.settings.run.join_timeout;
  std::string text = "still waiting for the other nodes, for " + seconds_text_of(*waited) +
                     " so far and " + seconds_text_of(limit) +
                     " at most (--rdzv-conf join_timeout): ";
  text += waiting_for_;
  if (!options_.advice.empty()) text += "; " + options_.advice;
  print(std::move(text));
}

void NativeParticipant::handle(const PrepareStore& message) {
  // In another phase a restart message is already on its way to this node.
  if (phase_ == Phase::Joining) actions_.push_back(HostStore{message.round});
}

void NativeParticipant::handle(const RoundComplete& message) {
  if (phase_ != Phase::Joining) return;
  latest_.record(message.round, message.life, message.restart_count);
  latest_.record_generation(message.generation);
  through_store_ = false;
  if (message.workers && message.store) return begin_round(message);
  ++failed_exchanges_;  // Counts as failed until the round begins.
  exchange_ = message;
  actions_.push_back(ExchangeThroughStore{message});
}

void NativeParticipant::begin_round(const RoundComplete& round) {
  round_ = round;
  has_round_ = true;
  round_lease_ = link_.lease();
  exchange_.reset();
  failed_exchanges_ = 0;
  failure_.clear();
  peers_.begin_round();
  notices_.begin_round();
  phase_ = Phase::Running;
  progress_.begin_round(round.best_step);
  actions_.push_back(BeginRound{round});
  if (auto kept = notices_.take_kept(round.round)) tell_workers(*std::move(kept));
  tell_own_workers();
}

void NativeParticipant::handle(const RestartRound& message) {
  // A late message, about an earlier round than the one whose workers run here, is ignored.
  const bool late =
      phase_ == Phase::Running && message.life == latest_.life() && message.round < round_.round;
  if (late) return;
  resuming_ = false;  // This message answers the resume: the round has ended.
  latest_.record(message.round, message.life, message.restart_count);
  exchange_.reset();
  if (phase_ == Phase::Finished) send_finish();
  const bool by_operator = message.who == operator_name();
  const bool is_planned = message.cause == RestartCause::NodeLeft ||
                          message.cause == RestartCause::NodeJoined ||
                          message.cause == RestartCause::Notice || by_operator;
  if (phase_ != Phase::Finished)
    end_round({.why = why_restart(message),
               .is_planned = is_planned,
               .for_notice = message.cause == RestartCause::Notice && !by_operator});
}

void NativeParticipant::handle(const NotAMember& message) {
  resuming_ = false;
  // The host did not know this node any more when the failure was reported.
  if (!failure_.empty() && phase_ != Phase::Finished && link_.welcome().resumes) return resume();
  const std::string silent =
      "this node was not heard in time, and the others need not wait for it any more";
  end_round({.why = message.why.empty() ? silent : message.why});
}

void NativeParticipant::handle(const Resumed& message) {
  if (!std::exchange(resuming_, false)) return;
  latest_.record_life(message.life);
  print("the rendezvous at " + options_.host_text + " is back: round " +
            std::to_string(round_.round) + " goes on",
        false);
  finish_unsent_ = false;
  if (phase_ == Phase::Finished)
    send(NodeFinished{{}, round_.round, !farewell_until_, failure_});
  else if (!failure_.empty())
    send(WorkersFailed{{}, round_.round, failure_, failure_hung_});
  if (phase_ == Phase::Running && notices_.have_saved() && link_.welcome().notices)
    send(NodeSaved{{}, round_.round});
  if (phase_ == Phase::Joining) ask_to_join();
}

void NativeParticipant::handle(const Rejoin& message) {
  resuming_ = false;
  latest_.record(message.round, message.life, message.restart_count);
  exchange_.reset();
  end_round({.why = message.why});
}

/// Tells the host that this node has finished, or has failed for good, if it did so while it
/// resumed: the host took it for running. Returns whether it did.
bool NativeParticipant::send_finish() {
  if (!std::exchange(finish_unsent_, false)) return false;
  send(NodeFinished{{}, round_.round, !farewell_until_, failure_});
  return true;
}

/// The round is over for this node. What follows depends on the phase.
void NativeParticipant::end_round(RestartWorkers restart) {
  if (phase_ != Phase::Finished) failure_.clear();
  switch (phase_) {
    case Phase::Joining:
      return ask_to_join();  // The host may have counted this node to the ended round: joins again.
    case Phase::Finished:
      if (send_finish() || farewell_until_) return;
      print("when the workers of this node finished, the job had gone on without it (" +
            restart.why + "): nothing can be said of the other nodes");
      return end({.succeeded = true});
    case Phase::Running:
      phase_ = Phase::Outside;
      return actions_.push_back(std::move(restart));
    case Phase::Outside:
    case Phase::Over:
      return;
  }
}

void NativeParticipant::handle(const RunClosed&) {
  const std::string why = "a torchrun node has ended the run: there will be no further round";
  if (phase_ != Phase::Joining) return print(why, false);
  if (options_.settings.spare) return end({.succeeded = true, .why = why});
  fail(why);
}

void NativeParticipant::handle(const RunEnded& message) {
  end({.succeeded = message.succeeded,
       .who = message.who ? "node " + to_string(*message.who) : std::string(),
       .why = message.why,
       .preempted = message.preempted,
       .without_progress = message.without_progress,
       .hopeless = message.hopeless});
}

void NativeParticipant::handle(const JoinRefused& message) {
  resuming_ = false;
  if (phase_ != Phase::Joining) return end_round({.why = message.text});
  const bool refused = message.why != JoinRefused::Why::TimedOut;
  fail("the rendezvous at " + options_.host_text + (refused ? " refused this node: " : ": ") +
       message.text);
}

void NativeParticipant::end(EndJob end) {
  phase_ = Phase::Over;
  actions_.push_back(std::move(end));
}

void NativeParticipant::fail(std::string why) {
  phase_ = Phase::Over;
  actions_.push_back(FailRendezvous{std::move(why)});
}

// --- notices -------------------------------------------------------------------------------------

void NativeParticipant::on(const NoticeGiven& event) {
  if (!notices_.give(later(now_, event.left), event.reason)) return;
  send_own_notice();
  if (phase_ == Phase::Running) tell_own_workers();
}

void NativeParticipant::on(const WorkersHaveSaved&) {
  if (phase_ != Phase::Running || !notices_.note_saved()) return;
  if (attached() && link_.welcome().notices) send(NodeSaved{{}, round_.round});
}

/// After each join and resume, too: the host may have been started again without a record.
void NativeParticipant::send_own_notice() {
  const auto& own = notices_.own();
  if (!link_.is_up() || !link_.welcome().notices || !own) return;
  const Duration left = std::max(Duration::zero(), own->deadline - now_);
  send(NodeNotified{{}, left, own->reason, 0});
}

std::optional<std::pair<int, int>> NativeParticipant::own_ranks() const {
  if (!round_.workers) return std::nullopt;
  const int first = round_.workers->base_global_rank.value;
  return std::pair(first, first + options_.node.local_world_size - 1);
}

/// The host is an older muster and tells nobody. So at least this node's own workers are told.
void NativeParticipant::tell_own_workers() {
  const auto& notice = notices_.own();
  if (!notice || !link_.is_up() || link_.welcome().notices) return;
  TellWorkers told{.deadline = notice->deadline,
                   .reason = notice->reason,
                   .ranks = {},
                   .this_node = true,
                   .stops = true};
  if (const auto own = own_ranks()) told.ranks = {*own};
  tell_workers(std::move(told));
}

void NativeParticipant::handle(const PreemptionNotice& message) {
  TellWorkers told{.deadline = later(now_, message.left),
                   .reason = message.reason,
                   .ranks = message.ranks,
                   .this_node = message.this_node,
                   .stops = message.stops};
  notices_.learn(told);
  if (phase_ == Phase::Joining && exchanging(message.round))
    notices_.keep_for(message.round, std::move(told));
  else if (phase_ == Phase::Running && message.round == round_.round)
    tell_workers(std::move(told));
}

void NativeParticipant::tell_workers(TellWorkers told) {
  // The host leaves out ranges if there are very many. A node's own must not be missing.
  const auto own = told.this_node ? own_ranks() : std::nullopt;
  const bool has_own =
      own && std::any_of(told.ranks.begin(), told.ranks.end(), [&](const auto& range) {
        return range.first <= own->first && own->second <= range.second;
      });
  if (own && !has_own) {
    told.ranks.push_back(*own);
    std::sort(told.ranks.begin(), told.ranks.end());
  }
  if (notices_.tell(told)) actions_.push_back(std::move(told));
}

/// Whether this node's deadline is here, and no host decides what follows: it is away, or an older
/// muster.
bool NativeParticipant::goes_alone() const {
  return phase_ == Phase::Running && notices_.goes_at(now_) &&
         !(attached() && link_.welcome().notices);
}

}  // namespace muster
