#include "rendezvous/wire/run_service.h"

#include <algorithm>

#include "rendezvous/core/check.h"
#include "rendezvous/wire/state_codec.h"

namespace muster {

RunService::RunService(RunServiceOptions options) : options_(std::move(options)) {
  if (!options_.only_run.empty()) make_run(std::string(kStateKeyPrefix) + options_.only_run);
}

// --- runs ----------------------------------------------------------------------------------------

RunService::Run* RunService::find(std::string_view key) const {
  const auto found = runs_.find(key);
  return found == runs_.end() ? nullptr : found->second.get();
}

const Rendezvous* RunService::rendezvous(std::string_view run_id) const {
  const Run* run = find(std::string(kStateKeyPrefix).append(run_id));
  return run == nullptr ? nullptr : run->rendezvous.get();
}

std::unique_ptr<Rendezvous> RunService::new_rendezvous() {
  if (options_.setup.life != 0) ++options_.setup.life;
  return std::make_unique<Rendezvous>(options_.setup);
}

RunService::Run* RunService::make_run(const std::string& key) {
  if (runs_.size() >= options_.runs && !make_room()) return nullptr;
  auto run = std::make_unique<Run>();
  run->key = key;
  run->rendezvous = new_rendezvous();
  run->turns = CompareSetTurns(options_.turns);
  effects_.emplace_back(ShowState{key});
  return (runs_[key] = std::move(run)).get();
}

/// The run that has been without anybody for longest gives way.
bool RunService::make_room() {
  Run* oldest = nullptr;
  for (const auto& [key, run] : runs_)
    if (run->deserted && run->clients.empty() && (!oldest || run->deserted < oldest->deserted))
      oldest = run.get();
  if (oldest == nullptr) return false;
  forget(*oldest);
  return true;
}

void RunService::forget(Run& run) {
  MUSTER_CHECK(run.clients.empty());
  note(RunNote::Level::Info, "run_forgotten run=" + std::string(run.id()));
  effects_.emplace_back(ForgetRun{run.key, true});
  erase(run);
}

void RunService::erase(Run& run) {
  if (run.deadline) deadlines_.erase({*run.deadline, run.key});
  runs_.erase(runs_.find(run.key));
}

bool RunService::hand_back(std::string_view key) {
  Run* run = find(key);
  if (run == nullptr || !options_.only_run.empty() || !run->rendezvous->untouched()) return false;
  const auto is_native = [&](std::uint32_t client) { return clients_.at(client).front().native; };
  if (std::any_of(run->clients.begin(), run->clients.end(), is_native)) return false;
  for (const std::uint32_t client : run->clients) {
    std::vector<Client>& known = clients_.at(client);
    std::erase_if(known, [&](const Client& one) { return one.run == run; });
    if (!known.empty()) continue;
    clients_.erase(client);
    --state_clients_;
  }
  erase(*run);
  return true;
}

/// Over for everybody who was in it, or left by everybody long ago.
bool RunService::reusable(const Run& run, Instant now) const {
  if (!options_.only_run.empty() || draining_) return false;
  if (run.rendezvous->forsaken()) return true;
  return run.deserted && !run.rendezvous->untouched() &&
         now - *run.deserted >= options_.forget_after;
}

void RunService::begin_again(Run& run) {
  run.rendezvous = new_rendezvous();
  ++run.generation;
  run.repeat_master.reset();
  run.waiting.clear();
  run.text_revision.reset();
  run.joins = 0;
  run.gathering.reset();
  run.noted_round.reset();
  run.noted_end = run.noted_closed = false;
  effects_.emplace_back(ForgetRun{run.key, false});
  note(RunNote::Level::Info, "run_begins_again run=" + std::string(run.id()));
}

std::optional<Instant> RunService::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

/// After everything that can change a run: when it wants to be looked at next.
void RunService::settle(Run& run, Instant now) {
  note_progress(run, now);
  const bool nobody = run.rendezvous->members() == 0 || run.rendezvous->forsaken();
  if (!nobody || !options_.only_run.empty())
    run.deserted.reset();
  else if (!run.deserted)
    run.deserted = now;
  std::optional<Instant> next = run.rendezvous->next_deadline();
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  also(run.turns.next_deadline());
  also(run.repeat_master);
  if (run.may_tell && !run.waiting.empty()) also(run.tell_at);
  if (run.deserted && run.clients.empty()) also(*run.deserted + options_.forget_after);
  if (next == run.deadline) return;
  if (run.deadline) deadlines_.erase({*run.deadline, run.key});
  run.deadline = next;
  if (next) deadlines_.emplace(*next, run.key);
}

void RunService::time_passed(Time time) {
  std::vector<Run*> due;
  for (const auto& [at, key] : deadlines_) {
    if (at > time.now) break;
    due.push_back(find(key));
  }
  for (Run* run : due) {
    if (run->deserted && run->clients.empty() &&
        time.now - *run->deserted >= options_.forget_after) {
      forget(*run);
      continue;
    }
    carry_out(*run, run->rendezvous->step(RendezvousTimePassed{}, time.now), time.now);
    run->turns.time_passed(time.now);
    answer_released(*run, time);
    if (run->may_tell && run->tell_at <= time.now) tell_waiting(*run, time.now);
    if (run->repeat_master && *run->repeat_master <= time.now) repeat_master(*run);
    settle(*run, time.now);
  }
}

// --- the c10d door -------------------------------------------------------------------------------

void RunService::add_state_client(ConnectionId from, Run& run) {
  std::vector<Client>& known = clients_[from.value];
  if (known.empty()) ++state_clients_;
  if (!run.clients.insert(from.value).second) return;
  known.push_back({.run = &run, .generation = run.generation});
}

const SharedBytes& RunService::text_of(Run& run, Time time) {
  Rendezvous& rendezvous = *run.rendezvous;
  const RendezvousState& state = rendezvous.render(time.now, time.wall);
  if (run.text_revision != rendezvous.revision()) {
    run.text = SharedBytes::copy_of(rendezvous.untouched() ? kNoStateText : encode_state(state));
    run.text_revision = rendezvous.revision();
  }
  return run.text;
}

SharedBytes RunService::read_state(ConnectionId from, std::string_view key, Time time) {
  Run* run = find(key);
  MUSTER_CHECK(run != nullptr);
  add_state_client(from, *run);
  run->rendezvous->heard(from, time.now);
  run->turns.gone(from, time.now);  // It had a turn, and does not use it.
  answer_released(*run, time);
  SharedBytes text = text_of(*run, time);
  settle(*run, time.now);
  return text;
}

void RunService::waits(ConnectionId client, std::optional<std::string_view> key, Time time) {
  const auto known = clients_.find(client.value);
  if (known == clients_.end()) return;
  for (Client& one : known->second) {
    if (one.native || one.generation != one.run->generation) continue;
    auto how = Rendezvous::Waits::No;
    if (key)
      how = key->ends_with(kExitBarrierKey) ? Rendezvous::Waits::AtExit
                                            : Rendezvous::Waits::ForAnything;
    if (key && how == Rendezvous::Waits::AtExit) one.exit_barrier = *key;
    carry_out(*one.run, one.run->rendezvous->waits(client, how, time.now, time.wall), time.now);
    answer_released(*one.run, time);
    settle(*one.run, time.now);
  }
}

/// A run begins when a client writes a state, or the text for none, where nothing was.
CompareSetOutcome RunService::begin_by_state(const StateCompareSet& request, Run*& run) {
  if (request.stored || draining_ || !options_.only_run.empty() ||
      !request.key.starts_with(kStateKeyPrefix) || request.key.size() == kStateKeyPrefix.size())
    return NotOfARun{};
  if (!decode_state(request.desired)) return NotOfARun{};
  if (!request.expected.empty() && !decode_state(request.expected)) return NotOfARun{};
  run = make_run(std::string(request.key));
  if (run != nullptr) return NotOfARun{};
  return StateRefused{"no more runs: limit runs=" + std::to_string(options_.runs)};
}

boost::system::result<StateProposal, StateRefused> RunService::read_proposal(
    Run& run, ConnectionId from, const StateCompareSet& request, Time time) {
  const auto refuse = [&](const char* which, const StateError& error) {
    return StateRefused{"the " + std::string(which) + " state of " + run.key + ": " +
                        describe(error)};
  };
  StateProposal proposal{.from = from, .seen = {}, .proposed = {}};
  if (request.expected == text_of(run, time).view() && !run.rendezvous->untouched()) {
    proposal.seen = run.rendezvous->render(time.now, time.wall);
  } else if (!request.expected.empty()) {
    auto seen = decode_state(request.expected);
    if (!seen) return refuse("expected", seen.error());
    if (auto& state = *seen) proposal.seen = std::move(*state);
  }
  auto proposed = decode_state(request.desired);
  if (!proposed) return refuse("desired", proposed.error());
  if (auto& state = *proposed) proposal.proposed = std::move(*state);
  return proposal;
}

bool RunService::was_let_go(ConnectionId client, const Run& run) const {
  const auto found = clients_.find(client.value);
  return found != clients_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const Client& one) { return one.run == &run && one.let_go; });
}

CompareSetOutcome RunService::compare_set(ConnectionId from, const StateCompareSet& request,
                                          Time time) {
  Run* run = find(request.key);
  if (run == nullptr) {
    CompareSetOutcome outcome = begin_by_state(request, run);
    if (run == nullptr) return outcome;
  }
  if (request.desired == kNoStateText) {
    // What every torchrun node does first.
    const bool first = request.expected.empty() || request.expected == kNoStateText;
    if (first && reusable(*run, time.now)) begin_again(*run);
    return StateNow{read_state(from, request.key, time)};
  }
  if (run->rendezvous->untouched()) {
    const auto first = decode_state(request.desired);
    if (!first && hand_back(request.key))
      return NotOfARun{std::string(request.key) + " is set to what is no rendezvous' state (" +
                       describe(first.error()) + ")"};
  }
  add_state_client(from, *run);
  auto proposal = read_proposal(*run, from, request, time);
  if (!proposal) return proposal.error();
  if (proposal->proposed.closed &&
      (was_let_go(from, *run) || run->rendezvous->finished_before_others(from)))
    return StateNow{SharedBytes::copy_of(request.desired)};  // It believes what it likes to.
  CompareSetOutcome outcome = propose(*run, *proposal, request.desired, time);
  settle(*run, time.now);
  return outcome;
}

CompareSetOutcome RunService::propose(Run& run, const StateProposal& proposal,
                                      std::string_view desired, Time time) {
  const ConnectionId from = proposal.from;
  ProposalResult result = run.rendezvous->propose(proposal, time.now, time.wall);
  carry_out(run, std::move(result.actions), time.now);
  switch (result.verdict) {
    case ProposalVerdict::Refused:
      run.turns.answered(from, time.now);
      answer_released(run, time);
      return StateRefused{"the desired state of " + run.key + ": " + result.refusal};
    case ProposalVerdict::Accepted:
      run.text = SharedBytes::copy_of(desired);
      run.text_revision = run.rendezvous->revision();
      [[fallthrough]];
    case ProposalVerdict::Merged:
      if (run.turns.may_try(from)) run.turns.tried(from, true, time.now);
      answer_released(run, time);
      return StateNow{text_of(run, time)};
    case ProposalVerdict::Lost:
      break;
  }
  if (run.turns.may_try(from))
    run.turns.tried(from, false, time.now);
  else
    run.turns.hold(from, time.now);
  if (answer_released(run, time, from)) return StateNow{text_of(run, time)};
  return HeldBack{};
}

/// Whether `asking` is among those whose turn it is: its answer is the caller's business.
bool RunService::answer_released(Run& run, Time time, std::optional<ConnectionId> asking) {
  bool own = false;
  for (const ConnectionId client : run.turns.take_released()) {
    if (asking && client == *asking)
      own = true;
    else
      effects_.emplace_back(AnswerHeld{client, text_of(run, time)});
  }
  return own;
}

// --- the native door -----------------------------------------------------------------------------

NativeAnswer RunService::receive(ConnectionId from, std::string_view json,
                                 const std::string& peer_address, Time time) {
  auto request = decode_native_request(json, from);
  if (!request) {
    const std::string why = describe(request.error());
    return {NativeRefused{"muster " + options_.muster_version + " does not understand: " + why},
            "native message: " + why};
  }
  const auto known = clients_.find(from.value);
  if (const auto* hello = std::get_if<NativeHello>(&*request)) {
    if (known == clients_.end()) return receive_hello(from, *hello, peer_address);
    return {NativeRefused{"hello came a second time, or after c10d requests"},
            "native message: hello came too late"};
  }
  if (known == clients_.end() || !known->second.front().native)
    return {NativeRefused{"the first message is not hello"},
            "native message: the first one is not hello"};
  std::visit(
      [&](auto& event) {
        if constexpr (std::is_constructible_v<RendezvousEvent, decltype(event)>)
          on_event(from, known->second.front(), event, time);
      },
      *request);
  return {};
}

NativeAnswer RunService::receive_hello(ConnectionId from, const NativeHello& hello,
                                       const std::string& peer_address) {
  const auto refuse = [&](const std::string& text) {
    return NativeAnswer{NativeRefused{text}, "native hello refused: " + text};
  };
  if (hello.protocol_version != kNativeProtocolVersion)
    return refuse("muster " + hello.muster_version + " at " + peer_address + " speaks protocol " +
                  std::to_string(hello.protocol_version) + ", the rendezvous is muster " +
                  options_.muster_version + " with protocol " +
                  std::to_string(kNativeProtocolVersion));
  if (hello.run_id.empty()) return refuse("the run id is empty");
  if (!options_.only_run.empty() && hello.run_id != options_.only_run)
    return refuse("run id " + hello.run_id + " is not served here, only " + options_.only_run);
  if (draining_) return refuse("the rendezvous is ending: run " + hello.run_id + " is over here");
  const std::string key = std::string(kStateKeyPrefix) + hello.run_id;
  Run* run = find(key);
  if (run == nullptr) run = make_run(key);
  if (run == nullptr)
    return refuse("the rendezvous has " + std::to_string(runs_.size()) +
                  " runs, all in use: limit runs=" + std::to_string(options_.runs));
  run->clients.insert(from.value);
  clients_[from.value] = {{.run = run, .native = true, .generation = run->generation}};
  const NativeWelcome welcome{kNativeProtocolVersion, options_.muster_version, peer_address,
                              options_.setup.lease};
  return {welcome, {}};
}

/// Whether it may go to the run's rendezvous as it is now, which may begin anew with it.
bool RunService::may_join(ConnectionId from, Client& client, const NodeJoined& event, Instant now) {
  Run& run = *client.run;
  // It may not know yet that the run is over: its join is none for another run.
  if (client.ended) {
    const NativeMessage refusal = JoinRefused{from, JoinRefused::Why::Closed, "the run is over"};
    effects_.emplace_back(SendNative{from, refusal});
    return false;
  }
  if (event.last_round < 0 && reusable(run, now)) begin_again(run);
  client.generation = run.generation;
  return true;
}

void RunService::on_event(ConnectionId from, Client& client, const RendezvousEvent& event,
                          Time time) {
  Run& run = *client.run;
  if (const auto* join = std::get_if<NodeJoined>(&event)) {
    if (!may_join(from, client, *join, time.now)) return;
    begin_to_wait(run, from, time.now);
  }
  if (client.generation != run.generation) return;  // Of a run that is over.
  RendezvousActions actions = run.rendezvous->step(event, time.now);
  if (const auto* join = std::get_if<NodeJoined>(&event)) note_join(run, *join, time.now);
  const bool waits_for_others = std::holds_alternative<NodeFinished>(event) &&
                                run.rendezvous->name_of(from) && !run.rendezvous->outcome();
  if (waits_for_others) begin_to_wait(run, from, time.now);
  carry_out(run, std::move(actions), time.now);
  run.may_tell = run.may_tell || !std::holds_alternative<KeptAlive>(event);
  settle(run, time.now);
}

void RunService::carry_out(Run& run, RendezvousActions actions, Instant now) {
  if (actions.empty()) return;
  run.may_tell = true;
  note_restart(run, actions);
  if (run.rendezvous->phase() == Rendezvous::Phase::Running) note_progress(run, now);
  for (RendezvousAction& action : actions)
    std::visit(
        [&](auto& message) {
          using Message = std::decay_t<decltype(message)>;
          if constexpr (std::is_same_v<Message, NodeGone>) {
            note_gone(run, message);
          } else if constexpr (std::is_same_v<Message, ClockSkewSeen>) {
            note_skew(run, message);
          } else if constexpr (std::is_same_v<Message, LetGo>) {
            let_go(run, message.client);
          } else {
            const ConnectionId to = message.to;
            sent(run, to, NativeMessage(std::move(message)));
          }
        },
        action);
}

void RunService::let_go(Run& run, ConnectionId client) {
  for (Client& one : clients_.at(client.value)) {
    if (one.run != &run) continue;
    one.let_go = true;
    effects_.emplace_back(OpenBarrier{one.exit_barrier});
  }
}

void RunService::sent(Run& run, ConnectionId to, const NativeMessage& message) {
  const bool ended = std::holds_alternative<RunEnded>(message);
  if (ended || std::holds_alternative<RoundComplete>(message) ||
      std::holds_alternative<JoinRefused>(message) || std::holds_alternative<NotAMember>(message))
    run.waiting.erase(to.value);
  const auto known = clients_.find(to.value);
  if (known == clients_.end()) return;
  if (ended) known->second.front().ended = true;
  SendNative effect{.to = to, .message = message};
  const auto* round = std::get_if<RoundComplete>(&message);
  if (round != nullptr && round->group_rank.value == 0 && !round->workers)
    for (const std::uint32_t client : run.clients)
      if (!clients_.at(client).front().native) effect.readers.push_back({client});
  effects_.emplace_back(std::move(effect));
}

void RunService::begin_to_wait(Run& run, ConnectionId client, Instant now) {
  const Instant tell_at = now + options_.waiting_interval;
  if (run.waiting.empty()) run.tell_at = std::max(run.tell_at, tell_at);
  run.waiting.try_emplace(client.value, Run::Waiter{tell_at, {}});
}

void RunService::tell_waiting(Run& run, Instant now) {
  run.may_tell = false;
  run.tell_at = now + options_.waiting_interval;
  // Rank 0 is done in a moment, as a rule: worth a line only if it is not.
  const bool preparing = run.rendezvous->phase() == Rendezvous::Phase::Preparing;
  if (preparing && !std::exchange(run.was_preparing, true)) return void(run.may_tell = true);
  run.was_preparing = preparing;
  for (auto& [client, waiter] : run.waiting) {
    if (waiter.tell_at > now) {
      run.may_tell = true;
      run.tell_at = std::min(run.tell_at, waiter.tell_at);
      continue;
    }
    std::string reason = run.rendezvous->reason_for({client});
    if (reason == waiter.told) continue;
    waiter.told = std::move(reason);
    waiter.tell_at = now + options_.waiting_interval;
    effects_.emplace_back(SendNative{{client}, NativeWaiting{waiter.told}});
  }
}

void RunService::repeat_master(Run& run) {
  run.repeat_master.reset();
  if (const NodeName* leader = run.rendezvous->torchrun_leader())
    effects_.emplace_back(RepeatMaster{run.key, run.rendezvous->round(), leader->addr});
}

// --- connections ---------------------------------------------------------------------------------

void RunService::gone(ConnectionId client, Time time) {
  const auto found = clients_.find(client.value);
  if (found == clients_.end()) return;
  const std::vector<Client> all = std::move(found->second);
  clients_.erase(found);
  if (!all.front().native) --state_clients_;
  for (const Client& each : all) {
    Run& run = *each.run;
    run.clients.erase(client.value);
    run.waiting.erase(client.value);
    run.turns.gone(client, time.now);
    if (each.generation == run.generation || !each.native) {
      carry_out(run, run.rendezvous->step(ConnectionLost{client}, time.now), time.now);
      run.may_tell = true;
    }
    answer_released(run, time);
    settle(run, time.now);
  }
}

}  // namespace muster
