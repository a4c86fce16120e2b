#include "rendezvous/host/run_service.h"

#include <algorithm>

#include "base/printable_text.h"
#include "base/seconds_text.h"
#include "rendezvous/host/event_reason.h"
#include "rendezvous/host/run_guard.h"
#include "rendezvous/torchrun/state_key.h"

namespace muster {
namespace {

/// A loop that is this late, or a quarter of the lease, was frozen. A shorter delay is a busy
/// machine, which leases allow for.
constexpr Duration kFrozenAfter = std::chrono::seconds(1);
constexpr int kWakesPerLease = 4;

}  // namespace

RunService::RunService(RunServiceOptions options)
    : options_(std::move(options)),
      gate_({.recorded = options_.recorded,
             .shared_state = options_.shared_state,
             .patience = options_.state_patience}) {
  if (has_one_life()) make_run(std::string(kStateKeyPrefix) + options_.only_run, {});
}

// --- runs ----------------------------------------------------------------------------------------

const Rendezvous* RunService::rendezvous(std::string_view run_id) const {
  const Run* run = find(std::string(kStateKeyPrefix).append(run_id));
  return run == nullptr ? nullptr : run->rendezvous.get();
}

/// Makes a rendezvous whose generations are above `generation` and above those of any earlier run
/// of this name. An earlier run began at an earlier millisecond and had less than one round per
/// millisecond, so the clock in milliseconds is above its generations.
std::unique_ptr<Rendezvous> RunService::new_rendezvous(std::int64_t generation, bool ended) {
  if (options_.setup.life != 0) ++options_.setup.life;
  RendezvousSetup setup = options_.setup;
  setup.recorded = options_.recorded;
  setup.ended_generation = ended ? generation : 0;
  setup.most_reported = std::min(std::max(setup.generation_floor, wall_ms_) + kMaxGenerationsAhead,
                                 kMaxReportedGeneration);
  setup.generation_floor = std::max({setup.generation_floor, generation, wall_ms_});
  return std::make_unique<Rendezvous>(setup);
}

RunHistory RunService::new_history() const {
  if (!options_.numbers_events_by_clock || wall_ms_ < 1) return RunHistory();
  return RunHistory(static_cast<std::uint64_t>(wall_ms_));
}

/// Null if the limit of runs is reached and every run is in use.
RunService::Run* RunService::make_run(const std::string& key, const std::string& peer) {
  if (!gate_.works() || !make_room(peer)) return nullptr;
  auto run = std::make_unique<Run>(report_bytes_);
  run->key = key;
  run->peer = peer;
  run->rendezvous = new_rendezvous();
  run->history = new_history();
  run->turns = CompareSetTurns(options_.turns);
  gate_.send(ShowState{key});
  return &runs_.add(std::move(run));
}

/// If this peer or the whole service has too many runs, forgets the longest deserted one of them.
/// Returns whether there is room.
bool RunService::make_room(const std::string& peer) {
  const RunRegistry::Limits limits{options_.runs, options_.runs_per_peer};
  if (runs_.has_room(peer, limits)) return true;
  Run* oldest = runs_.longest_idle(peer, limits);
  if (oldest == nullptr) return false;
  forget(*oldest);
  return true;
}

/// Keeps a deserted run that has ended, and lets the oldest such run go if there are too many.
void RunService::keep_ended(Run& run, Instant now) {
  if (!run.deserted || !run.rendezvous->outcome() || options_.kept_ended_runs == 0)
    return drop_kept(run);
  if (run.kept) return;
  run.kept.emplace(run.ended_ms, run.key);
  kept_.insert(*run.kept);
  if (kept_.size() <= options_.kept_ended_runs) return;
  Run* oldest = find(kept_.begin()->second);
  if (oldest == nullptr) return;
  drop_kept(*oldest);
  if (oldest == &run) return;
  // It is forgotten in its own turn: nothing may be erased here.
  runs_.set_deadline(*oldest, now);
}

void RunService::drop_kept(Run& run) {
  if (run.kept) kept_.erase(*run.kept);
  run.kept.reset();
  run.only_for_people = false;
}

std::string RunService::full() const {
  if (!gate_.works())
    return "no new run begins while the state of runs cannot be recorded: " + gate_.problem();
  return "no more runs: limit runs=" + std::to_string(options_.runs) +
         ", of one address runs_per_peer=" + std::to_string(options_.runs_per_peer);
}

/// When the run is to be forgotten; empty: it is kept. While changes cannot be recorded, no run
/// begins. So the nodes of a forgotten run would be refused when they come back from an outage of
/// the network.
std::optional<Instant> RunService::forget_at(const Run& run) const {
  if (!run.deserted || !run.clients.empty() || !gate_.works() || run.only_for_people)
    return std::nullopt;
  return *run.deserted + options_.forget_after;
}

/// For a kept run: from now on it is only looked at.
void RunService::forget_keys(Run& run, Instant now) {
  run.only_for_people = true;
  gate_.send(ForgetRun{run.key, false});
  finish_change(run, now);
}

/// To be called only for a run without clients.
void RunService::forget(Run& run) {
  log_.forgotten(run);
  gate_.send(ForgetRun{run.key, true});
  erase(run);
}

void RunService::erase(Run& run) {
  gate_.forget(std::string(run.id()));
  drop_kept(run);
  runs_.erase(run);
}

/// Whether the run id may be used for a new run: the old run is over for all its nodes, or has had
/// no nodes for forget_after.
bool RunService::reusable(const Run& run, Instant now) const {
  if (has_one_life() || draining_ || !gate_.works()) return false;
  if (run.rendezvous->is_reusable()) return true;
  return run.deserted && !run.rendezvous->untouched() &&
         now - *run.deserted >= options_.forget_after;
}

void RunService::begin_again(Run& run, Instant now) {
  gate_.forget(std::string(run.id()));
  const bool ended = run.rendezvous->outcome().has_value();  // If not, its nodes may still work.
  if (const auto& outcome = run.rendezvous->outcome()) {
    run.previous = {.succeeded = outcome->succeeded,
                    .preempted = outcome->preempted,
                    .why = outcome->why,
                    .restarts_used = run.rendezvous->restarts_used(),
                    .first_failure = std::exchange(run.first_failure, {}),
                    .failure_report = std::exchange(run.failure_report, {})};
    if (run.ended_ms > 0) run.previous->ended_at_ms = run.ended_ms;
  }
  run.rendezvous = new_rendezvous(run.rendezvous->highest_generation(), ended);
  ++run.generation;
  run.repeat_master.reset();
  run.waiting.clear();
  run.text_revision.reset();
  run.reports.clear();
  run.steps.clear();
  run.up_since.reset();
  run.began_ms = 0;
  run.first_failure.reset();
  run.failure_report.reset();
  run.ended_ms = 0;
  drop_kept(run);
  run.logged = {};
  gate_.send(ForgetRun{run.key, false});
  log_.begins_again(run, now);
}

std::size_t RunService::runs_of(ConnectionId client) const {
  const auto known = clients_.find(client.value);
  return known == clients_.end() ? 0 : known->second.size();
}

bool RunService::is_client(ConnectionId client, std::string_view key) const {
  const Run* run = find(key);
  return run != nullptr && run->clients.count(client.value) > 0;
}

std::optional<Instant> RunService::next_deadline() const {
  std::optional<Instant> next = runs_.next_deadline();
  if (!held_joins_.empty() && !options_.shared_state)
    next = std::min(next.value_or(refuse_joins_at_), refuse_joins_at_);
  const auto patient_until = gate_.patient_until();
  return next && patient_until ? std::min(next, patient_until) : next ? next : patient_until;
}

void RunService::follow_progress(Run& run, Instant now) {
  const RunLog::News news = log_.progress(run, now);
  // In a first round rank 0 always publishes its address. In a round without torchrun nodes no node
  // reads it.
  if (news.round_complete && run.rendezvous->round() > 0)
    run.repeat_master = now + options_.master_patience;
  if (!news.ended) return;
  note_failure_report(run);
  record_end(run);
}

/// Called after everything that can change a run: logs and records the changes, and updates the
/// run's deadline.
void RunService::finish_change(Run& run, Instant now) {
  follow_progress(run, now);
  record_changes(run, now);
  const bool nobody = run.rendezvous->members() == 0 || run.rendezvous->is_reusable();
  if (!nobody || has_one_life())
    run.deserted.reset();
  else if (!run.deserted)
    run.deserted = now;
  runs_.set_idle(run, run.clients.empty() ? run.deserted : std::nullopt);
  keep_ended(run, now);
  std::optional<Instant> next = run.rendezvous->next_deadline();
  const auto also = [&](std::optional<Instant> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  // Wakes this often, because only a timer that fires late shows that the host was frozen. Nodes
  // keep alive three times in a lease, so a pause that is not noticed makes no node silent.
  if (run.rendezvous->members() > 0) also(now + options_.setup.lease / kWakesPerLease);
  also(run.turns.next_deadline());
  also(run.repeat_master);
  // The reason to notify may have come after that time. A deadline in the past would look like a
  // timer that fires late.
  if (run.must_notify() && !run.waiting.empty()) also(std::max(run.notify_at, now));
  also(forget_at(run));
  runs_.set_deadline(run, next);
}

void RunService::time_passed(Time time) {
  record_wall_clock(time);
  if (const auto until = gate_.patient_until(); until && time.now >= *until) {
    const std::string storage = options_.shared_state ? "etcd" : "the disk";
    gate_.fail(storage + " has not answered for " + seconds_text(options_.state_patience));
    log_state_problem();
  }
  refuse_overdue_joins(time.now);
  for (const std::string& key : runs_.due(time.now)) {
    Run* run = find(key);
    if (run == nullptr) continue;
    if (const auto at = forget_at(*run); at && time.now >= *at)
      run->kept ? forget_keys(*run, time.now) : forget(*run);
    else
      guard(*run, time.now, [&] { tend(*run, time); });
  }
}

void RunService::woke_late(Duration late, Time time) {
  if (late < std::min(kFrozenAfter, options_.setup.lease / kWakesPerLease)) return;
  for (const auto& [key, run] : runs_)
    guard(*run, time.now, [&, &here = *run] {
      here.rendezvous->host_was_frozen(late, time.now);
      finish_change(here, time.now);
    });
  if (late < kFrozenAfter) return;
  log_.write(LogLine::Level::Warning,
             "host_was_frozen seconds=" +
                 std::to_string(std::chrono::duration_cast<std::chrono::seconds>(late).count()) +
                 " advice=\"nobody could be heard meanwhile: every lease begins anew\"");
}

/// Handles the passing of time for one run.
void RunService::tend(Run& run, Time time) {
  apply(run, run.rendezvous->step(RendezvousTimePassed{}, time.now), time.now);
  run.turns.time_passed(time.now);
  answer_released(run, time);
  if (run.must_notify() && run.notify_at <= time.now) notify_waiting(run, time.now);
  if (run.repeat_master && *run.repeat_master <= time.now) repeat_master(run);
  finish_change(run, time.now);
}

// --- the native door -----------------------------------------------------------------------------

NativeAnswer RunService::receive(ConnectionId from, std::string_view json,
                                 const std::string& peer_address, Time time) {
  record_wall_clock(time);
  auto request = decode_native_request(json, from);
  if (!request) {
    const std::string why = describe(request.error());
    return {NativeRefused{"muster " + options_.muster_version + " does not understand: " + why},
            "native message: " + why};
  }
  const auto known = clients_.find(from.value);
  if (const auto* hello = std::get_if<NativeHello>(&*request)) {
    if (known == clients_.end()) return receive_hello(from, *hello, peer_address, time);
    return {NativeRefused{"hello came a second time, or after c10d requests"},
            "native message: hello came too late", "native hello came too late"};
  }
  if (known == clients_.end() || !known->second.front().native)
    return {NativeRefused{"the first message is not hello"},
            "native message: the first one is not hello"};
  Client& client = known->second.front();
  if (std::holds_alternative<NativeProve>(*request))
    return {NativeRefused{"prove came without a challenge"},
            "native message: prove came without a challenge"};
  if (std::holds_alternative<NativeReach>(*request))
    return {NativeRefused{"reach is for the workers' store, not for the rendezvous"},
            "native message: reach came to a rendezvous"};
  if (auto* report = std::get_if<NodeReport>(&*request))
    receive(from, client, std::move(*report), time.now);
  if (auto* answered = std::get_if<NodeAnswered>(&*request))
    questions_.answer(from, client.run->rendezvous->name_of(from), std::move(*answered));
  add_facts(*request, {client.resumes, client.notices, wall_ms_});
  cut_reason(*request);
  std::visit(
      [&](auto& event) {
        if constexpr (std::is_constructible_v<RendezvousEvent, decltype(event)>)
          guard(*client.run, time.now, [&] { on_event(from, client, event, time); });
      },
      *request);
  if (std::holds_alternative<NodeJoined>(*request) && held_joins_.contains(from.value))
    return {NativeWaiting{"the rendezvous cannot record its state (" + gate_.problem() +
                          "); this node joins when it can"},
            {}};
  if (client.resumes && std::holds_alternative<KeptAlive>(*request)) return {NativeAlive{}, {}};
  return {};
}

NativeAnswer RunService::receive_hello(ConnectionId from, const NativeHello& hello,
                                       const std::string& peer_address, Time time) {
  const auto refuse = [&](const std::string& text) {
    return NativeAnswer{NativeRefused{text}, "native hello refused: " + text};
  };
  if (hello.protocol_version != kNativeProtocolVersion)
    return refuse("muster " + hello.muster_version + " at " + peer_address + " speaks protocol " +
                  std::to_string(hello.protocol_version) + ", the rendezvous is muster " +
                  options_.muster_version + " with protocol " +
                  std::to_string(kNativeProtocolVersion));
  if (hello.run_id.empty()) return refuse("the run id is empty");
  if (!options_.only_run.empty() && hello.run_id != options_.only_run) {
    if (Run* only = find(std::string(kStateKeyPrefix) + options_.only_run); only != nullptr)
      guard(*only, time.now, [&] {
        only->rendezvous->note_refusal("one at " + peer_address + " has --rdzv-id=" + hello.run_id +
                                       ", and this job has --rdzv-id=" + options_.only_run);
        only->notify_pending = true;
        finish_change(*only, time.now);
      });
    NativeAnswer other_job =
        refuse("this node has --rdzv-id=" + hello.run_id +
               ", and the job here has --rdzv-id=" + options_.only_run +
               ": give all nodes of a job the same id, and each job a port of its own, or let "
               "musterd host them");
    other_job.is_fault = false;
    return other_job;
  }
  if (draining_) return refuse("the rendezvous is ending: run " + hello.run_id + " is over here");
  const std::string key = std::string(kStateKeyPrefix) + hello.run_id;
  // Otherwise the state of this run would stand in the place of a key of another run's round.
  if (!is_state_key(key))
    return refuse("run id " + hello.run_id +
                  " looks like a key of a round of another run: take one without \".NUMBER/\"");
  Run* run = find(key);
  if (run == nullptr) run = make_run(key, peer_address);
  if (run == nullptr) return refuse(full());
  run->clients.insert(from.value);
  runs_.set_idle(*run, std::nullopt);
  clients_[from.value] = {{.run = run,
                           .native = true,
                           .resumes = hello.resumes,
                           .generation = run->generation,
                           .answers = hello.answers,
                           .notices = hello.notices}};
  const NativeWelcome welcome{
      .muster_version = options_.muster_version,
      .peer_address = peer_address,
      .lease = options_.setup.lease,
      .resumes = true,
      .outlives_nodes = !has_one_life(),
      .takes_reports = true,
      .state_id = options_.state_id,
      .state_is_shared = options_.shared_state && !options_.state_id.empty(),
      .notices = true,
      .takes_progress = true};
  return {welcome, {}};
}

void RunService::on_event(ConnectionId from, Client& client, const RendezvousEvent& event,
                          Time time) {
  Run& run = *client.run;
  if (const auto held = held_joins_.find(from.value); held != held_joins_.end()) {
    if (std::holds_alternative<KeptAlive>(event)) return;  // receive() answers.
    held_joins_.erase(held);
  }
  if (const auto* join = std::get_if<NodeJoined>(&event)) {
    if (!may_join(from, client, *join, time.now)) return;
    begin_to_wait(run, from, time.now);
  }
  const auto* resumed = std::get_if<NodeResumed>(&event);
  if (resumed != nullptr) client.generation = run.generation;
  if (resumed != nullptr && resumed->state == NodeResumed::State::Finished)
    begin_to_wait(run, from, time.now);
  if (client.generation != run.generation) return;  // The event belongs to a run that is over.
  const bool waits_already = run.rendezvous->is_waiting(from);
  RendezvousActions actions = run.rendezvous->step(event, time.now);
  const auto* join = std::get_if<NodeJoined>(&event);
  const bool refused = std::any_of(actions.begin(), actions.end(), [](const auto& action) {
    return std::holds_alternative<JoinRefused>(action);
  });
  if (join != nullptr && !refused && !waits_already) log_.joined(run, *join, time.now);
  const bool waits_for_others = std::holds_alternative<NodeFinished>(event) &&
                                run.rendezvous->name_of(from) && !run.rendezvous->outcome();
  if (waits_for_others) begin_to_wait(run, from, time.now);
  apply(run, std::move(actions), time.now);
  run.notify_pending = run.notify_pending || !std::holds_alternative<KeptAlive>(event);
  finish_change(run, time.now);
}

/// The storage works again: the nodes that have waited for it join.
void RunService::join_held_nodes(Time time) {
  for (auto& [number, held] : std::exchange(held_joins_, {})) {
    const auto client = clients_.find(number);
    if (client == clients_.end()) continue;
    const ConnectionId from{number};
    guard(*client->second.front().run, time.now,
          [&, &join = held.join] { on_event(from, client->second.front(), join, time); });
  }
}

void RunService::apply(Run& run, RendezvousActions actions, Instant now) {
  if (actions.empty()) return;
  run.notify_pending = true;
  log_.recovery(run, actions, now);
  log_.restart(run, actions, now);
  if (run.rendezvous->phase() == Rendezvous::Phase::Running) follow_progress(run, now);
  for (RendezvousAction& action : actions)
    std::visit(
        [&](auto& message) {
          using Message = std::decay_t<decltype(message)>;
          if constexpr (std::is_same_v<Message, NodeGone>) {
            log_.node_gone(run, message, now);
          } else if constexpr (std::is_same_v<Message, NodeHeldBack>) {
            log_.held_back(run, message, now);
          } else if constexpr (std::is_same_v<Message, FailureCounted>) {
            log_.late_failure(run, message, now);
          } else if constexpr (std::is_same_v<Message, CommandsDiffer>) {
            log_.other_command(run, message, now);
          } else if constexpr (std::is_same_v<Message, NoticeGiven> ||
                               std::is_same_v<Message, NodeAnsweredNotice> ||
                               std::is_same_v<Message, NoticeOver>) {
            log_.notice(run, message, now);
          } else if constexpr (std::is_same_v<Message, ClockSkewSeen>) {
            log_.clock_skew(run, message, now);
          } else if constexpr (std::is_same_v<Message, ReleaseFromExitBarrier>) {
            release_from_exit_barrier(run, message.client);
          } else if constexpr (!std::is_same_v<Message, RoundRecovered>) {
            if constexpr (std::is_same_v<Message, JoinRefused>)
              if (message.settings_differ) message.text += remedy(run, now);
            const ConnectionId to = message.to;
            send_message(run, to, NativeMessage(std::move(message)));
          }
        },
        action);
}

void RunService::release_from_exit_barrier(Run& run, ConnectionId client) {
  const auto known = clients_.find(client.value);
  if (known == clients_.end()) return;
  for (Client& one : known->second) {
    if (one.run != &run) continue;
    one.released_from_exit_barrier = true;
    gate_.send(OpenBarrier{one.exit_barrier});
  }
}

void RunService::send_message(Run& run, ConnectionId to, const NativeMessage& message) {
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
      if (const auto reader = clients_.find(client);
          reader != clients_.end() && !reader->second.front().native)
        effect.readers.push_back({client});
  gate_.send(std::move(effect));
}

void RunService::repeat_master(Run& run) {
  run.repeat_master.reset();
  if (const NodeName* leader = run.rendezvous->torchrun_leader())
    gate_.send(RepeatMaster{run.key, run.rendezvous->round(), leader->addr});
}

// --- connections ---------------------------------------------------------------------------------

void RunService::disconnect(ConnectionId client, Time time) {
  gate_.drop_client(client);
  held_joins_.erase(client.value);
  questions_.drop_client(client);
  const auto found = clients_.find(client.value);
  if (found == clients_.end()) return;
  const std::vector<Client> all = std::move(found->second);
  clients_.erase(found);
  if (!all.front().native) --state_clients_;
  for (const Client& each : all)
    guard(*each.run, time.now, [&] { leave(each, client, time); });
}

/// Ends the part that a closed connection had in one run.
void RunService::leave(const Client& client, ConnectionId connection, Time time) {
  Run& run = *client.run;
  run.clients.erase(connection.value);
  run.waiting.erase(connection.value);
  run.turns.give_up(connection, time.now);
  if (client.generation == run.generation || !client.native) {
    apply(run, run.rendezvous->step(ConnectionLost{connection}, time.now), time.now);
    run.notify_pending = true;
  }
  answer_released(run, time);
  finish_change(run, time.now);
}

// --- messages to nodes that wait -----------------------------------------------------------------

void RunService::begin_to_wait(Run& run, ConnectionId client, Instant now) {
  const Instant notify_at = now + options_.waiting_interval;
  if (run.waiting.empty()) {
    run.notify_at = std::max(run.notify_at, notify_at);
    run.notify_from.reset();
  }
  run.waiting.try_emplace(client.value, Run::Waiter{notify_at, {}});
}

/// What a job can do that is refused for the sake of nodes that may never come back: after a power
/// cut, or when a job begins again with other settings.
std::string RunService::remedy(const Run& run, Instant now) const {
  const auto deserted = run.rendezvous->deserted_by();
  if (!deserted || has_one_life()) return {};
  std::string text = "; no node of that run is here";
  if (gate_.works()) {
    const Instant since = run.deserted.value_or(std::max(*deserted, now));
    const Duration left = since + options_.forget_after - now;
    text += ": unless one comes back, the run is forgotten " +
            (left > Duration::zero() ? "in " + seconds_text(left) : "now") +
            " (--forget-run-seconds)";
  }
  return text + "; `musterctl stop` ends it at once, and another --rdzv-id makes another run";
}

/// Sends the waiting messages to at most kMaxNotifiedNodes nodes. If there are more nodes, the next
/// part is due at once.
void RunService::notify_waiting(Run& run, Instant now) {
  const auto from = std::exchange(run.notify_from, std::nullopt);
  // Changes between two parts stay pending: the nodes of the earlier parts do not know them.
  if (!from) run.notify_pending = false;
  if (!from) run.notify_again = now + options_.waiting_interval;
  run.notify_at = run.notify_again;
  // Rank 0 usually prepares the store quickly: nodes are told about it only if it takes longer than
  // one interval.
  const bool preparing = run.rendezvous->phase() == Rendezvous::Phase::Preparing;
  if (preparing && !std::exchange(run.was_preparing, true)) return void(run.notify_pending = true);
  run.was_preparing = preparing;
  std::size_t nodes = 0;
  for (auto next = run.waiting.lower_bound(from.value_or(0)); next != run.waiting.end(); ++next) {
    auto& [client, waiter] = *next;
    if (waiter.notify_at > now) {
      run.notify_pending = true;
      run.notify_at = std::min(run.notify_at, waiter.notify_at);
      continue;
    }
    if (nodes++ == kMaxNotifiedNodes) {
      run.notify_again = std::exchange(run.notify_at, now);
      run.notify_from = client;
      return;
    }
    std::string reason = run.rendezvous->reason_for({client});
    if (reason == waiter.last_text) continue;
    waiter.last_text = std::move(reason);
    waiter.notify_at = now + options_.waiting_interval;
    gate_.send(SendNative{{client}, NativeWaiting{waiter.last_text}});
  }
}

// --- recording -----------------------------------------------------------------------------------

void RunService::record_changes(Run& run, Instant now) {
  if (!options_.recorded) return;
  auto change = run.rendezvous->take_changes(now);
  if (!change) return;
  change->record.first_failure = run.first_failure;
  change->record.failure_report = run.failure_report;
  if (run.ended_ms > 0) change->record.ended_at_ms = run.ended_ms;
  if (run.began_ms > 0) change->record.began_at_ms = run.began_ms;
  change->record.previous = run.previous;
  gate_.record(std::string(run.id()), *std::move(change));
}

void RunService::recorded(const StateReport& report, Time time) {
  const auto news = gate_.handle_report(report, time.now);
  if (news == DurabilityGate::News::Failing) log_state_problem();
  if (news != DurabilityGate::News::Works) return;
  log_.write(LogLine::Level::Warning,
             "state_is_recorded_again advice=\"nothing: the storage takes changes again\"");
  for (const auto& [key, run] : runs_)
    finish_change(*run, time.now);  // Deserted runs may be forgotten again.
  join_held_nodes(time);
}

void RunService::log_state_problem() {
  const char* advice = options_.shared_state
                           ? "workers go on; no round begins or ends, and new runs are refused, "
                             "until etcd takes writes again: this ends by itself"
                           : "runs go on; new run ids are refused, and jobs that use the id of "
                             "an ended run wait; free space in the state directory, or repair "
                             "its disk: this ends by itself";
  log_.write(LogLine::Level::Error, "state_not_recorded reason=\"" +
                                        printable_text(gate_.problem()) + "\" advice=\"" + advice +
                                        "\"");
}

// --- joins that wait for the storage -------------------------------------------------------------

/// Whether the join may go to the run's rendezvous. A run whose id may be used again begins again
/// with this join. If no run can begin now, the join waits.
bool RunService::may_join(ConnectionId from, Client& client, const NodeJoined& event, Instant now) {
  Run& run = *client.run;
  // The node may not have read yet that the run is over. Its join must not begin another run.
  if (client.ended) {
    const NativeMessage refusal = JoinRefused{from, JoinRefused::Why::Closed, "the run is over"};
    gate_.send(SendNative{from, refusal});
    return false;
  }
  const bool is_new = event.last_round < 0 && !run.rendezvous->missed_the_end(event);
  // All agents of a run in etcd were stopped, and the next job of that id has other settings.
  const bool is_left = options_.hands_over && run.rendezvous->members() == 0 &&
                       run.rendezvous->has_other_settings(event.run);
  if (is_new && !is_left && must_hold(run)) return hold_join(from, event, now), false;
  if (is_new && (is_left || reusable(run, now))) begin_again(run, now);
  client.generation = run.generation;
  return true;
}

/// Whether a node that asks for the next run of this id must wait: no run begins while the state
/// cannot be recorded.
bool RunService::must_hold(const Run& run) const {
  return !gate_.works() && !has_one_life() && !draining_ && run.rendezvous->is_reusable();
}

void RunService::hold_join(ConnectionId from, const NodeJoined& join, Instant now) {
  const HeldJoin held{join, later(now, join.run.join_timeout)};
  if (held_joins_.empty()) refuse_joins_at_ = held.until;
  refuse_joins_at_ = std::min(refuse_joins_at_, held.until);
  held_joins_.insert_or_assign(from.value, held);
}

/// Not with a shared state: while it fails, nothing is sent, and a refusal would leave when the
/// node can join.
void RunService::refuse_overdue_joins(Instant now) {
  if (options_.shared_state || held_joins_.empty() || now < refuse_joins_at_) return;
  refuse_joins_at_ = later(now, kLongestWait);
  std::erase_if(held_joins_, [&](const auto& entry) {
    const auto& [number, held] = entry;
    if (now < held.until) {
      refuse_joins_at_ = std::min(refuse_joins_at_, held.until);
      return false;
    }
    const std::string text =
        "no run could begin within " + seconds_text(held.join.run.join_timeout) +
        " (--rdzv-conf join_timeout): the state of runs cannot be recorded: " + gate_.problem();
    const NativeMessage refusal =
        JoinRefused{ConnectionId{number}, JoinRefused::Why::TimedOut, text};
    gate_.send(SendNative{ConnectionId{number}, refusal});
    return true;
  });
}

// --- torchrun nodes ------------------------------------------------------------------------------

/// The answer to a torchrun node that has changed the state waits until the change is durable, as
/// messages do.
CompareSetOutcome RunService::when_recorded(ConnectionId from, CompareSetOutcome outcome) {
  auto* now = std::get_if<StateNow>(&outcome);
  if (now == nullptr || !gate_.is_waiting()) return outcome;
  gate_.send(AnswerHeld{from, std::move(now->text)});
  return HeldBack{};
}

// --- ended runs ----------------------------------------------------------------------------------

void RunService::record_end(const Run& run) {
  const Rendezvous& rendezvous = *run.rendezvous;
  const auto& outcome = rendezvous.outcome();
  if (!outcome) return;
  EndedRun ended{.run_id = std::string(run.id()),
                 .ended_at = wall_ms_ / 1'000,
                 .rounds = rendezvous.round() + (rendezvous.generation() > 0 ? 1 : 0),
                 .generation = rendezvous.generation(),
                 .nodes = rendezvous.last_world(),
                 .restarts = rendezvous.restarts_used(),
                 .outcome = {outcome->succeeded, outcome->who, outcome->why, outcome->preempted}};
  gate_.record_end(ended);
  history_.push_back(std::move(ended));
  while (history_.size() > options_.history)
    history_.pop_front();
}

// --- restoring a record --------------------------------------------------------------------------

void RunService::restore(StoredState state, Time time) {
  record_wall_clock(time);
  if (!state.id.empty()) options_.state_id = std::move(state.id);
  const std::size_t runs = state.runs.size();
  for (StoredRun& run : state.runs)
    restore(std::move(run), time);
  history_.assign(state.ended.begin(), state.ended.end());
  while (history_.size() > options_.history)
    history_.pop_front();
  if (runs > 0) log_.write(LogLine::Level::Info, "runs_restored runs=" + std::to_string(runs));
}

void RunService::restore(StoredRun stored, Time time) {
  const std::string key = std::string(kStateKeyPrefix) + stored.run_id;
  if (find(key) != nullptr) return;
  auto run = std::make_unique<Run>(report_bytes_);
  run->key = key;
  run->rendezvous = new_rendezvous();
  run->history = new_history();
  run->rendezvous->restore(stored.record, stored.members, time.now, {wall_ms_ * 1'000});
  run->turns = CompareSetTurns(options_.turns);
  // The earlier host has already logged these.
  if (stored.record.complete && !stored.record.preparing) run->logged.round = stored.record.round;
  run->logged.end = stored.record.outcome.has_value();
  run->failure_report = stored.record.failure_report;
  run->ended_ms = stored.record.ended_at_ms.value_or(0);
  run->previous = stored.record.previous;
  run->logged.closed = stored.record.closed;
  gate_.send(ShowState{key});
  // Before the failure: a run begins without one.
  log_.begins(*run, time.now,
              "the host was started again, or another one leads now: it has no earlier events");
  run->began_ms = stored.record.began_at_ms.value_or(0);
  if (const auto& failure = stored.record.first_failure) {
    const auto before =
        std::chrono::milliseconds(std::max<std::int64_t>(0, wall_ms_ - failure->at_ms));
    run->first_failure = failure;
    run->history.restore_first_failure({.kind = failure->kind,
                                        .at = time.now - before,
                                        .round = failure->round,
                                        .node = failure->node,
                                        .rank = failure->rank,
                                        .cause = failure->cause,
                                        .text = failure->text});
  }
  Run& here = runs_.add(std::move(run));
  finish_change(here, time.now);
}

}  // namespace muster
