#include "rendezvous/service/native_participant.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

constexpr int kFruitlessRounds = 3;

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
    case RestartCause::Requested:
      break;
  }
  if (message.who == operator_name()) return "an operator wants a restart: " + message.what;
  return "a restart was asked for by node " + who + ": " + message.what;
}

}  // namespace

NativeParticipant::NativeParticipant(Options options)
    : options_(std::move(options)), lease_(options_.settings.lease) {}

NativeParticipant::Actions NativeParticipant::step(const Event& event, Instant now) {
  const Instant before = std::exchange(now_, now);
  actions_.clear();
  if (phase_ == Phase::Over) return {};
  if (now - before > lease_ / 2) forgive_pause(now - before);
  std::visit([this](const auto& e) { on(e); }, event);
  if (phase_ != Phase::Over) keep_link();
  if (phase_ != Phase::Over) weigh_evidence();
  if (phase_ != Phase::Over) keep_limits();
  return std::exchange(actions_, {});
}

// --- what the agent wants ------------------------------------------------------------------------

void NativeParticipant::on(const JoinAsked&) {
  phase_ = Phase::Joining;
  joined_at_ = now_;
  if (attached()) ask_to_join();
}

void NativeParticipant::ask_to_join() {
  NodeJoined join = options_.node;
  join.last_round = told_;
  join.life = told_by_;
  join.generation = generation_;
  join.restart_count = restart_count_;
  lost_since_.reset();
  exchange_.reset();  // The host takes it from this join that no workers start here.
  send(std::move(join));
}

void NativeParticipant::resume() {
  NodeResumed event;
  event.join = options_.node;
  event.join.last_round = round_->round;
  event.join.life = told_by_;
  event.join.generation = round_->generation;
  event.join.restart_count = restart_count_;
  event.state = phase_ == Phase::Running    ? NodeResumed::State::Running
                : phase_ == Phase::Finished ? NodeResumed::State::Finished
                                            : NodeResumed::State::Stopped;
  event.group_rank = round_->group_rank.value;
  event.group_world_size = round_->group_world_size;
  event.restart_count = round_->restart_count;
  event.workers = round_->workers;
  event.store = round_->store;
  event.failure = failure_;
  resuming_ = true;
  send(std::move(event));
}

void NativeParticipant::on(const WorkersHaveFailed& event) {
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Outside;
  failure_ = event.what;
  if (attached()) return send(WorkersFailed{{}, round_->round, failure_});
  say("the rendezvous at " + options_.host_text + " is away: it is told that " + failure_ +
      " when it is back, and nothing is started before");
}

void NativeParticipant::on(const PartFinished& event) {
  if (!event.succeeded && !up_)  // Nobody hears it, and nobody can tell us anything.
    return end({.succeeded = false,
                .why = "the rendezvous at " + options_.host_text + " cannot be reached"});
  phase_ = Phase::Finished;
  if (attached())
    send(NodeFinished{{}, round_ ? round_->round : told_, event.succeeded, event.what});
  if (!event.succeeded) {
    farewell_until_ = now_ + options_.settings.close_timeout;
    return;
  }
  if (through_store_) actions_.push_back(EnterExitBarrier{});
  if (up_) return;
  finish_until_ = now_ + options_.settings.read_timeout;
  if (welcome_.outlives_nodes)
    say("the workers of this node have finished; the rendezvous at " + options_.host_text +
        " is away: waiting for it for " + seconds_text_of(options_.settings.read_timeout));
}

void NativeParticipant::on(const LeaveAsked&) {
  if (up_) send(NodeLeft{});
  phase_ = Phase::Over;
}

void NativeParticipant::on(const StoreHosted& event) {
  if (up_) send(StoreReady{{}, event.round, options_.node.name.addr, event.port});
}

void NativeParticipant::on(const StoreFailed& event) {
  if (up_) send(NodeFinished{{}, event.round, false, event.why});
  give_up(event.why);
}

void NativeParticipant::on(const ExchangeDone& event) {
  if (phase_ != Phase::Joining || !exchanging(event.round)) return;
  through_store_ = true;
  begin_round(*std::exchange(exchange_, std::nullopt));
}

void NativeParticipant::on(const ExchangeFailed& event) {
  if (phase_ != Phase::Joining || !exchanging(event.round)) return;
  exchange_.reset();
  const std::string what = "round " + std::to_string(event.round) +
                           " was complete, but came to nothing: " + event.trouble;
  if (fruitless_ < kFruitlessRounds) {
    say(what + "; asking for another one");
    if (up_) send(RestartRequested{{}, event.trouble, event.round});
    return;
  }
  if (up_) send(NodeFinished{{}, event.round, false, what});
  give_up(what + ", as the " + std::to_string(fruitless_ - 1) + " rounds before it");
}

void NativeParticipant::on(const ExitBarrierLeft&) {
  if (phase_ == Phase::Finished) end({.succeeded = true});
}

// --- what the host says --------------------------------------------------------------------------

void NativeParticipant::on(const Heard& event) {
  heard_ = now_;
  std::visit([this](const auto& message) { hear(message); }, event.message);
}

void NativeParticipant::hear(const NativeRefused& message) {
  end({.succeeded = false, .why = message.text});
}

void NativeParticipant::hear(const NativeWaiting& message) {
  if (phase_ == Phase::Joining) say("waiting for the other nodes: " + message.text);
  if (phase_ == Phase::Finished)
    say("the workers of this node have finished; waiting for the other nodes: " + message.text);
}

void NativeParticipant::note_told(std::int64_t round, std::int64_t life, int restart_count) {
  told_ = round;  // Less than before if the host has begun again.
  told_by_ = life;
  restart_count_ = std::max(restart_count_, restart_count);
}

void NativeParticipant::hear(const PrepareStore& message) {
  // Elsewhere a restart is on its way.
  if (phase_ == Phase::Joining) actions_.push_back(HostStore{message.round});
}

void NativeParticipant::hear(const RoundComplete& message) {
  if (phase_ != Phase::Joining) return;
  note_told(message.round, message.life, message.restart_count);
  generation_ = std::max(generation_, message.generation);
  through_store_ = false;
  if (message.workers && message.store) return begin_round(message);
  ++fruitless_;  // Until it has begun.
  exchange_ = message;
  actions_.push_back(ExchangeThroughStore{message});
}

void NativeParticipant::begin_round(const RoundComplete& round) {
  round_ = round;
  exchange_.reset();
  fruitless_ = 0;
  failure_.clear();
  peers_.clear();
  reached_.reset();
  phase_ = Phase::Running;
  actions_.push_back(BeginRound{round});
}

void NativeParticipant::hear(const RestartRound& message) {
  // Late: of a round before the one whose workers run here.
  const bool late =
      phase_ == Phase::Running && message.life == told_by_ && message.round < round_->round;
  if (late) return;
  resuming_ = false;  // This is the answer: the round has ended by this node's coming back.
  note_told(message.round, message.life, message.restart_count);
  exchange_.reset();
  if (phase_ != Phase::Finished) meet_again(why_restart(message));
}

void NativeParticipant::hear(const NotAMember&) {
  resuming_ = false;
  meet_again("this node was not heard in time, and the others went on without it");
}

void NativeParticipant::hear(const Resumed& message) {
  if (!std::exchange(resuming_, false)) return;
  if (message.life != 0) told_by_ = message.life;
  say("the rendezvous at " + options_.host_text + " is back: round " +
          std::to_string(round_->round) + " goes on",
      false);
  lost_since_.reset();
  finish_until_.reset();
  if (!failure_.empty()) send(WorkersFailed{{}, round_->round, failure_});
  if (phase_ == Phase::Finished) send(NodeFinished{{}, round_->round, true, {}});
  if (phase_ == Phase::Joining) ask_to_join();
}

void NativeParticipant::hear(const Rejoin& message) {
  resuming_ = false;
  note_told(message.round, message.life, message.restart_count);
  exchange_.reset();
  lost_since_.reset();
  meet_again(message.why);
}

/// The round is over for this node.
void NativeParticipant::meet_again(const std::string& why) {
  failure_.clear();
  switch (phase_) {
    case Phase::Joining:
      return ask_to_join();  // It was in that round, by then; or it says so once more.
    case Phase::Finished:
      if (farewell_until_) return;
      say("this node was not heard in time when its workers finished, and the others went on "
          "without it: of them nothing can be said");
      return end({.succeeded = true});
    case Phase::Running:
      phase_ = Phase::Outside;
      return actions_.push_back(RestartWorkers{why});
    case Phase::Outside:
    case Phase::Over:
      return;
  }
}

void NativeParticipant::hear(const RunClosed&) {
  const std::string why = "a torchrun node has ended the run: there will be no further round";
  if (phase_ != Phase::Joining) return say(why, false);
  if (options_.settings.spare) return end({.succeeded = true, .why = why});
  give_up(why);
}

void NativeParticipant::hear(const RunEnded& message) {
  end({.succeeded = message.succeeded,
       .who = message.who ? "node " + to_string(*message.who) : std::string(),
       .why = message.why});
}

void NativeParticipant::hear(const JoinRefused& message) {
  resuming_ = false;
  if (phase_ == Phase::Running || phase_ == Phase::Finished) return meet_again(message.text);
  const bool refused = message.why != JoinRefused::Why::TimedOut;
  give_up("the rendezvous at " + options_.host_text + (refused ? " refused this node: " : ": ") +
          message.text);
}

void NativeParticipant::end(EndJob end) {
  phase_ = Phase::Over;
  actions_.push_back(std::move(end));
}

void NativeParticipant::give_up(std::string why) {
  phase_ = Phase::Over;
  actions_.push_back(GiveUp{std::move(why)});
}

}  // namespace muster
