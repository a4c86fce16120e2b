// RunService: the c10d door, through which torchrun nodes read and compare-and-set the state.

#include <algorithm>

#include "rendezvous/host/run_guard.h"
#include "rendezvous/host/run_service.h"
#include "rendezvous/torchrun/state_codec.h"

namespace muster {

/// The states in the two texts of a compare-and-set. The text of a large run takes 100 ms or more
/// to decode, so each text is decoded only when it is needed, and only once.
class DecodedTexts {
 public:
  using Decoded = StateResult<std::optional<RendezvousState>>;

  explicit DecodedTexts(const StateCompareSet& request) : request_(request) {}

  bool are_equal() const { return request_.expected == request_.desired; }
  const Decoded& desired() { return decode(desired_, request_.desired); }
  const Decoded& expected() {
    return are_equal() ? desired() : decode(expected_, request_.expected);
  }
  /// Whether the desired text is a value that has nothing to do with a rendezvous, and that Python
  /// cannot take for a pickle.
  bool wants_plain_value() { return !desired() && !may_be_pickle(request_.desired); }
  /// The states, for the only caller that needs no text after that. An empty state for "no state".
  /// The text must have been decoded without an error.
  RendezvousState take_desired() { return take(desired_); }
  RendezvousState take_expected() {
    if (!are_equal()) return take(expected_);
    return desired_ && *desired_ ? (*desired_)->value_or(RendezvousState{}) : RendezvousState{};
  }

 private:
  static const Decoded& decode(std::optional<Decoded>& decoded, std::string_view text) {
    if (!decoded) decoded.emplace(decode_state(text));
    return *decoded;
  }
  static RendezvousState take(std::optional<Decoded>& decoded) {
    if (!decoded || !*decoded) return {};
    std::optional<RendezvousState> state = std::move(**decoded);
    return state ? *std::move(state) : RendezvousState{};
  }

  const StateCompareSet& request_;
  std::optional<Decoded> desired_;
  std::optional<Decoded> expected_;
};

bool RunService::return_key_to_store(std::string_view key) {
  Run* run = find(key);
  if (run == nullptr || has_one_life() || !run->rendezvous->untouched()) return false;
  const auto is_native = [&](std::uint32_t client) {
    const auto known = clients_.find(client);
    return known != clients_.end() && known->second.front().native;
  };
  if (std::any_of(run->clients.begin(), run->clients.end(), is_native)) return false;
  for (const std::uint32_t client : run->clients) {
    const auto known = clients_.find(client);
    if (known == clients_.end()) continue;
    std::erase_if(known->second, [&](const Client& one) { return one.run == run; });
    if (!known->second.empty()) continue;
    clients_.erase(known);
    --state_clients_;
  }
  erase(*run);
  return true;
}

bool RunService::has_too_many_runs(ConnectionId client) const {
  const auto known = clients_.find(client.value);
  return known != clients_.end() && known->second.size() >= options_.runs_per_connection;
}

/// Adds the connection to the run. Returns false if it is already in too many other runs.
bool RunService::add_state_client(ConnectionId from, Run& run) {
  if (run.clients.contains(from.value)) return true;
  if (has_too_many_runs(from)) return false;
  std::vector<Client>& known = clients_[from.value];
  if (known.empty()) ++state_clients_;
  run.clients.insert(from.value);
  known.push_back({.run = &run, .generation = run.generation});
  runs_.set_idle(run, std::nullopt);
  return true;
}

const SharedBytes& RunService::text_of(Run& run, Time time) {
  Rendezvous& rendezvous = *run.rendezvous;
  const RendezvousState& state = rendezvous.render(time.now, time.wall);
  if (run.text_revision != rendezvous.revision()) {
    run.text.assign(
        SharedBytes::copy_of(rendezvous.untouched() ? kNoStateText : encode_state(state), account_),
        account_);
    run.text_revision = rendezvous.revision();
    rendered_nodes_ += rendezvous.members();
  }
  return run.text.bytes();
}

SharedBytes RunService::read_state(ConnectionId from, std::string_view key, Time time) {
  Run* run = find(key);
  SharedBytes text = SharedBytes::copy_of(kNoStateText);
  if (run == nullptr) return text;
  (void)add_state_client(from, *run);  // A client in too many runs may still read.
  guard(*run, time.now, [&] {
    handle_reader(from, *run, time);
    text = text_of(*run, time);
    finish_change(*run, time.now);
  });
  return text;
}

void RunService::check_state(ConnectionId from, std::string_view key, Time time) {
  Run* run = find(key);
  if (run == nullptr) return;
  (void)add_state_client(from, *run);
  guard(*run, time.now, [&] {
    handle_reader(from, *run, time);
    finish_change(*run, time.now);
  });
}

void RunService::handle_reader(ConnectionId from, Run& run, Time time) {
  run.rendezvous->note_request(from, time.now);
  run.turns.give_up(from, time.now);  // A client that reads does not use its turn to write.
  answer_released(run, time);
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
    guard(*one.run, time.now, [&] {
      apply(*one.run, one.run->rendezvous->waits(client, how, time.now, time.wall), time.now);
      answer_released(*one.run, time);
      finish_change(*one.run, time.now);
    });
  }
}

/// A run begins when a client writes a state, or the text for "no state", under an unused key.
CompareSetOutcome RunService::begin_by_state(ConnectionId from, const StateCompareSet& request,
                                             DecodedTexts& texts, Run*& run) {
  // Values under a round's keys are not decoded, so no state may be stored under such a key.
  if (request.key.starts_with(kStateKeyPrefix) && !is_state_key(request.key) && texts.desired())
    return StateRefused{"the run id of " + std::string(request.key) + " looks like a round's keys"};
  if (request.stored || draining_ || !options_.only_run.empty() ||
      !request.key.starts_with(kStateKeyPrefix) || request.key.size() == kStateKeyPrefix.size())
    return NotOfARun{};
  if (!texts.desired()) return NotOfARun{};
  if (!request.expected.empty() && !texts.expected()) return NotOfARun{};
  if (has_too_many_runs(from))
    return StateRefused{"limit runs_per_connection=" +
                        std::to_string(options_.runs_per_connection)};
  run = make_run(std::string(request.key), request.peer_address);
  if (run != nullptr) return NotOfARun{};
  return StateRefused{full()};
}

boost::system::result<StateProposal, StateRefused> RunService::read_proposal(
    Run& run, ConnectionId from, const StateCompareSet& request, DecodedTexts& texts, Time time) {
  const auto refuse = [&](const char* which, const StateError& error) {
    return StateRefused{"the " + std::string(which) + " state of " + run.key + ": " +
                        describe(error)};
  };
  StateProposal proposal{.from = from, .seen = {}, .proposed = {}};
  if (request.expected == text_of(run, time).view() && !run.rendezvous->untouched()) {
    proposal.seen = run.rendezvous->render(time.now, time.wall);
    if (texts.are_equal()) {
      proposal.proposed = proposal.seen;
      return proposal;
    }
  } else if (!request.expected.empty()) {
    if (!texts.expected()) return refuse("expected", texts.expected().error());
    proposal.seen = texts.take_expected();
  }
  if (!texts.desired()) return refuse("desired", texts.desired().error());
  proposal.proposed = texts.take_desired();
  return proposal;
}

bool RunService::was_released_from_exit_barrier(ConnectionId client, const Run& run) const {
  const auto found = clients_.find(client.value);
  return found != clients_.end() &&
         std::any_of(found->second.begin(), found->second.end(), [&](const Client& one) {
           return one.run == &run && one.released_from_exit_barrier;
         });
}

CompareSetOutcome RunService::compare_set(ConnectionId from, const StateCompareSet& request,
                                          Time time) {
  Run* run = find(request.key);
  DecodedTexts texts(request);
  if (run == nullptr) {
    CompareSetOutcome outcome = begin_by_state(from, request, texts, run);
    if (run == nullptr) return outcome;
  }
  if (request.desired == kNoStateText) {
    // Every torchrun node begins with this request.
    const bool first = request.expected.empty() || request.expected == kNoStateText;
    if (first && reusable(*run, time.now)) begin_again(*run, time.now);
    return StateNow{read_state(from, request.key, time)};
  }
  if (run->rendezvous->untouched()) {
    if (request.expected == kNoStateText && texts.wants_plain_value() &&
        return_key_to_store(request.key))
      return NotOfARun{std::string(request.key) +
                       " is set to a value that is no rendezvous' state (" +
                       describe(texts.desired().error()) + ")"};
  }
  if (!add_state_client(from, *run))
    return StateRefused{"limit runs_per_connection=" +
                        std::to_string(options_.runs_per_connection)};
  auto proposal = read_proposal(*run, from, request, texts, time);
  if (!proposal) {
    if (texts.wants_plain_value() && request.expected != text_of(*run, time).view())
      return StateNow{read_state(from, request.key, time)};  // It loses, as at torch's server.
    return proposal.error();
  }
  // The run stays open for the other nodes. This client alone gets the answer that its write won.
  const bool is_stranger = options_.only_nodes_close && run->rendezvous->name_of(from) == nullptr;
  if (proposal->proposed.closed && (is_stranger || was_released_from_exit_barrier(from, *run) ||
                                    run->rendezvous->ignores_close(from)))
    return StateNow{SharedBytes::copy_of(request.desired)};
  CompareSetOutcome outcome = StateRefused{"the run " + run->key + " has ended by a fault here"};
  guard(*run, time.now, [&] {
    outcome = propose(*run, *proposal, request.desired, time);
    finish_change(*run, time.now);
  });
  return when_recorded(from, std::move(outcome));
}

CompareSetOutcome RunService::propose(Run& run, const StateProposal& proposal,
                                      std::string_view desired, Time time) {
  const ConnectionId from = proposal.from;
  ProposalResult result = run.rendezvous->propose(proposal, time.now, time.wall);
  apply(run, std::move(result.actions), time.now);
  switch (result.verdict) {
    case ProposalVerdict::Refused:
      run.turns.answered(from, time.now);
      answer_released(run, time);
      return StateRefused{"the desired state of " + run.key + ": " + result.refusal};
    case ProposalVerdict::Accepted:
    case ProposalVerdict::Merged:
      if (run.turns.may_try(from)) run.turns.tried(from, true, time.now);
      answer_released(run, time);
      // The writer compares bytes to see whether it has won, and its pickler may differ from ours.
      // So it gets its own text back. All other clients get the text that is encoded here.
      if (result.verdict == ProposalVerdict::Accepted)
        return StateNow{SharedBytes::copy_of(desired, account_)};
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

/// Answers the held clients whose turn it is. Returns whether `asking` is one of them: the caller
/// answers that one.
bool RunService::answer_released(Run& run, Time time, std::optional<ConnectionId> asking) {
  bool own = false;
  for (const ConnectionId client : run.turns.take_released()) {
    if (asking && client == *asking)
      own = true;
    else
      gate_.send(AnswerHeld{client, text_of(run, time)});
  }
  return own;
}

}  // namespace muster
