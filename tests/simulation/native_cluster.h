// A simulated network with the real muster nodes and host: NativeParticipant against RunService,
// with every message through the codec.
//
// Connections are reliable and in order. Faults: connections are cut; the host is killed and
// started again with nothing, or stopped for a while; nodes are cut off from the host or from each
// other, fail, finish, and are killed.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/host/run_service.h"
#include "rendezvous/node/native_participant.h"
#include "tests/simulation/event_queue.h"
#include "tests/support/memory_state.h"
#include "tests/support/prng.h"
#include "tests/support/trace.h"

namespace muster::testing {

using namespace std::chrono_literals;
using Participant = NativeParticipant;

inline constexpr Duration kLease = 5s;
// The time for which NativeSession waits for a connection.
inline constexpr Duration kAnswerWithin = 2s;
inline constexpr Duration kWriteAgainAfter = 1s;  // The same value as in SqliteState.
inline constexpr Duration kReachWithin = 1s;
/// How long two rounds may have workers at the same time: docs/rendezvous_rules.md.
inline constexpr Duration kFenceBound = kLease + 2s;
inline constexpr Duration kMaxStop = 200ms;

class Cluster;

struct Worker {
  std::int64_t generation = 0;  // 0: no worker runs.
  Instant since{};
};

class SimNode {
 public:
  SimNode(Cluster& cluster, int index, RunSettings run, std::string run_id);
  void feed(const Participant::Event& event);
  void fail(const std::string& what);
  void finish();
  /// This node gets the notice that it will go after `left`.
  void notify(Duration left);
  void die() {
    alive = false;
    workers = {};
  }

  void apply(const Participant::Connect&);
  void apply(const Participant::Disconnect&);
  void apply(const Participant::Send& action);
  void apply(const Participant::HostStore& action);
  void apply(const Participant::ExchangeThroughStore& action);
  void apply(const Participant::EnterExitBarrier&) { at_exit_barrier = true; }
  void apply(const Participant::BeginRound& action);
  void apply(const Participant::RestartWorkers& action);
  void apply(const Participant::EndJob& action);
  void apply(const Participant::FailRendezvous& action);
  void apply(const Participant::AskReach& action);
  void apply(const Participant::SetReachAnswer& action);
  void apply(const Participant::TellWorkers& action);
  void apply(const Participant::Print& action) { last_printed = action.text; }

  Cluster& cluster;
  int index;
  std::string run_id;
  Participant participant;
  bool alive = true;
  std::optional<std::uint32_t> connection;
  Worker workers;
  Participant::SetReachAnswer reach_answer;
  std::string end, last_printed, last_restart;
  int restarts = 0;
  Instant cut_until{};        // The node is cut off from the host until this instant.
  Instant peers_cut_until{};  // The node is cut off from the other nodes until this instant.
  std::optional<Instant> wakes;
  std::uint64_t stop_number = 0;
  bool at_exit_barrier = false;
  // The notice of the workers' round, and the round whose workers have answered one.
  std::optional<Participant::TellWorkers> told;
  std::int64_t saved_generation = 0;
  bool is_older = false;  // Knows no notices.
  bool answers_notices = true;
  bool hangs = false;        // Its workers' next failure is a hang.
  bool is_hopeless = false;  // The run has ended because its attempts got no further.
};

class Cluster {
 public:
  /// With `recorded`, the host has a disk that outlives it.
  Cluster(std::uint64_t seed, RunSettings run, int count, bool recorded = false,
          RunServiceOptions options = {})
      : prng(seed), options_(std::move(options)) {
    if (recorded) state = std::make_unique<MemoryState>();
    begin_host();
    for (int i = 0; i < count; ++i)
      add_node("job", run);
  }
  SimNode& add_node(const std::string& run_id, RunSettings run) {
    watches_[run_id].run = run;
    const int index = static_cast<int>(nodes.size());
    nodes.push_back(std::make_unique<SimNode>(*this, index, run, run_id));
    return *nodes.back();
  }
  void start(int index) {
    SimNode& node = *nodes[static_cast<std::size_t>(index)];
    node.apply(Participant::Connect{});
    node.feed(Participant::JoinAsked{});
  }

  void at(Instant when, std::function<void()> what) {
    events_.push(std::max(when, now), std::move(what));
  }
  bool run_until(Instant end, const std::function<bool()>& done = {}) {
    return events_.run_until(now, end, done, [this] { return describe(); });
  }
  void trace(std::uint32_t link, std::string_view bytes) {
    Trace::now().add(now.time_since_epoch().count());
    Trace::now().add(std::int64_t{link});
    Trace::now().add(bytes);
  }
  Duration delay() { return std::chrono::microseconds(50 + prng.below(3'000)); }
  RunService::Time time() const {
    return {now, {1'700'000'000'000'000 + now.time_since_epoch().count() / 1000}};
  }

  // --- the host ---
  struct Link {
    SimNode* node = nullptr;
    int life = 0;
    bool open_at_node = true, open_at_host = true;
    Instant last_to_host{}, last_to_node{};
  };
  void begin_host() {
    ++life;
    RunServiceOptions options = options_;
    options.muster_version = "1.0";
    options.setup.lease = kLease;
    options.setup.life = std::int64_t{1'000} * life;
    options.recorded = state != nullptr;
    service = std::make_unique<RunService>(std::move(options));
    service->count_in(&accounts.emplace_back());
    host_wakes_.reset();
    if (!state) return;
    state->begin_host();
    durable_ = 0;
    at(std::max(now, down_until), [this, mine = life] {
      if (mine != life) return;
      service->restore(state->load(), time());
      apply_effects();
    });
  }
  bool is_up() const { return now >= down_until; }
  void kill_host(Duration down) {
    down_until = now + std::max<Duration>(down, 1ms);  // A process needs at least 1 ms to start.
    stopped_until = {};
    for (auto& [id, link] : links_) {
      if (link.life != life) continue;
      link.open_at_host = false;
      const Instant heard = std::max(now, link.node->cut_until) + delay();
      at(heard, [this, id] { break_at_node(id, "it was killed"); });
    }
    if (on_kill) on_kill();
    begin_host();
  }
  void stop_host(Duration pause) { stopped_until = now + pause; }

  void connect(SimNode& node) {
    const std::uint32_t id = next_link_++;
    const auto fails = [&node](Participant::ConnectFailed::Why why, const char* text) {
      if (node.alive) node.feed(Participant::ConnectFailed{why, text});
    };
    using Why = Participant::ConnectFailed::Why;
    if (node.cut_until > now)
      return at(now + kAnswerWithin, [fails] { fails(Why::NoAnswer, "no answer"); });
    if (!is_up()) return at(now + delay(), [fails] { fails(Why::NobodyListens, "refused"); });
    links_[id] = {.node = &node, .life = life, .last_to_host = now, .last_to_node = now};
    const auto answered = std::make_shared<bool>(false);
    at(now + kAnswerWithin, [this, id, fails, answered] {
      if (std::exchange(*answered, true)) return;
      close_at_node(id);
      fails(Why::NoAnswer, "no answer to hello");
    });
    const NativeHello hello{
        .muster_version = "1.0", .run_id = node.run_id, .resumes = true, .notices = !node.is_older};
    to_host(id, hello, [this, id, &node, answered](const NativeMessage& reply) {
      if (std::exchange(*answered, true) || !node.alive) return;
      node.connection = id;
      ++welcomes;
      if (breaks_after_welcome)
        at(now, [this, id] {
          break_at_node(id, "reset after the welcome");
          gone_at_host(id);
        });
      node.feed(Participant::Connected{std::get<NativeWelcome>(reply)});
    });
  }

  using OnReply = std::function<void(const NativeMessage&)>;
  void to_host(std::uint32_t id, const NativeRequest& request, OnReply on_reply = {}) {
    Link& link = links_.at(id);
    const std::string frame = encode(request);
    link.last_to_host = std::max({now + delay(), link.last_to_host, link.node->cut_until});
    at(link.last_to_host, [this, id, frame, on_reply] { arrive(id, frame, on_reply); });
    const auto* resumed = std::get_if<NodeResumed>(&request);
    if (resumed == nullptr || resumed->failure.empty()) return;
    // A message's own event comes first. It does not begin a round.
    at(link.last_to_host,
       [this, id, generation = resumed->join.generation] { reported(id, generation); });
  }
  /// A resume with a failure has arrived, if the host has not been killed meanwhile. It counts if
  /// no later round has begun.
  void reported(std::uint32_t id, std::int64_t generation) {
    if (now < stopped_until)
      return at(stopped_until, [this, id, generation] { reported(id, generation); });
    const Link& link = links_.at(id);
    if (!link.open_at_host || link.life != life || !is_up()) return;
    const std::string& run_id = link.node->run_id;
    const Rendezvous* run = service->rendezvous(run_id);
    if (run == nullptr || run->generation() > generation) return;
    watches_.at(run_id).reported[link.node].insert(generation);
  }
  void arrive(std::uint32_t id, const std::string& frame, const OnReply& on_reply) {
    if (now < stopped_until)
      return at(stopped_until, [this, id, frame, on_reply] { arrive(id, frame, on_reply); });
    Link& link = links_.at(id);
    if (!link.open_at_host || link.life != life || !is_up()) return;
    lost_connections_.erase(link.node);
    trace(id, frame);
    const auto answer = service->receive(
        {id}, std::string_view(frame).substr(1 + kNativeLengthBytes), "10.0.0.1", time());
    REQUIRE(answer.close.empty());
    if (answer.reply) to_node(id, *answer.reply, on_reply);
    apply_effects();
  }
  void to_node(std::uint32_t id, const NativeMessage& message, const OnReply& on_reply = {}) {
    const auto found = links_.find(id);
    if (found == links_.end() || !found->second.open_at_host) return;
    Link& link = found->second;
    link.last_to_node = std::max({now + delay(), link.last_to_node, link.node->cut_until});
    const std::string json = encode(message).substr(kNativeLengthBytes);
    at(link.last_to_node, [this, id, json, on_reply] {
      Link& open = links_.at(id);
      if (!open.open_at_node || !open.node->alive) return;
      trace(id, json);
      const auto decoded = decode_native_message(json);
      REQUIRE(decoded.has_value());
      if (on_reply) return on_reply(*decoded);
      if (open.node->connection == id) open.node->feed(Participant::MessageReceived{*decoded});
    });
  }
  void apply_effects() {
    while (service->has_effects())
      for (const RunEffect& effect : service->take_effects())
        if (const auto* send = std::get_if<SendNative>(&effect))
          to_node(send->to.value, send->message);
        else if (const auto* log = std::get_if<LogLine>(&effect)) {
          trace(0, log->line);
          notes.push_back(std::to_string(now.time_since_epoch() / 1ms) + " " + log->line);
          check_notice(log->line);
        } else if (on_effect)
          on_effect(effect);
    for (const auto& [run_id, watch] : watches_)
      if (const Rendezvous* run = service->rendezvous(run_id);
          run != nullptr && !run->counts_are_right())
        FAIL("wrong counts of members in " << run_id << "\n" << describe());
    write();
    const auto next = service->next_deadline();
    if (!next || (host_wakes_ && *host_wakes_ <= *next && *host_wakes_ > now)) return;
    host_wakes_ = std::max(*next, now);
    at(*host_wakes_, [this, mine = life] { wake_host(mine); });
  }
  /// Writes the changes of one turn. The host may be killed at this write, just before or just
  /// after the changes are durable.
  void write() {
    if (!state) return;
    auto changes = service->take_changes(time());
    if (!changes) return;
    state->record(*std::move(changes));
    if (++writes == crash_at_write) {
      if (crash_when_durable) state->commit();
      return at(now, [this, mine = life] {
        if (mine == life) kill_host(delay());
      });
    }
    at(now + (prng.chance(5) ? 300ms : 1ms) + delay(), [this, mine = life] { committed(mine); });
  }
  void committed(int mine) {
    if (mine != life) return;
    if (now < stopped_until) return at(stopped_until, [this, mine] { committed(mine); });
    const bool fails = failing_writes > 0 && prng.chance(failing_writes);
    if (!fails) durable_ = state->commit();
    service->recorded({.durable = durable_, .problem = fails ? "the disk fails" : ""}, time());
    if (fails) at(now + kWriteAgainAfter, [this, mine] { committed(mine); });
    apply_effects();
  }
  void wake_host(int mine) {
    if (mine != life) return;
    // The host first reads the messages that have arrived meanwhile.
    if (now < stopped_until) return at(stopped_until + 1us, [this, mine] { wake_host(mine); });
    if (host_wakes_ && *host_wakes_ > now) return;
    if (has_torchrun_nodes && host_wakes_) service->woke_late(now - *host_wakes_, time());
    host_wakes_.reset();
    service->time_passed(time());
    apply_effects();
  }
  std::uint32_t new_connection() { return next_link_++; }
  /// The connection breaks. The node and the host notice it independently.
  void cut(SimNode& node) {
    if (!node.connection) return;
    const std::uint32_t id = *node.connection;
    at(now + delay(), [this, id] { break_at_node(id, "reset"); });
    at(now + delay(), [this, id] { gone_at_host(id); });
  }
  void break_at_node(std::uint32_t id, const char* why) {
    Link& link = links_.at(id);
    if (!std::exchange(link.open_at_node, false) || !link.node->alive) return;
    if (link.node->connection != id) return;
    link.node->connection.reset();
    link.node->feed(Participant::ConnectionBroke{why});
  }
  void close_at_node(std::uint32_t id) {
    Link& link = links_.at(id);
    if (!std::exchange(link.open_at_node, false)) return;
    at(std::max(now + delay(), link.node->cut_until), [this, id] { gone_at_host(id); });
  }
  void gone_at_host(std::uint32_t id) {
    if (now < stopped_until) return at(stopped_until, [this, id] { gone_at_host(id); });
    Link& link = links_.at(id);
    if (!std::exchange(link.open_at_host, false) || link.life != life) return;
    lost_connections_.insert(link.node);
    service->disconnect({id}, time());
    apply_effects();
  }

  // --- invariants ---
  void began(SimNode& node, const RoundComplete& message) {
    const std::int64_t generation = message.generation;
    REQUIRE(generation > 0);
    Watch& watch = watches_.at(node.run_id);
    Round& round = watch.rounds[generation];
    if (round.ranks.empty()) {
      INFO("generation " << generation << " after " << watch.newest);
      REQUIRE(generation > watch.newest);
      watch.newest = generation;
      round.round = message.round;
      round.world = message.group_world_size;
      round.host_life = life;
    }
    INFO(describe());
    REQUIRE(round.round == message.round);
    REQUIRE(round.world == message.group_world_size);
    REQUIRE(round.ranks.emplace(message.group_rank.value, &node).second);
    const RestartPolicy policy = watch.run.restart_policy.value_or(RestartPolicy{});
    REQUIRE(message.restart_count <= watch.run.max_restarts + policy.hangs.value_or(0));
    if (message.round == 0) watch.restart_count = 0;  // It may be another run with this name.
    if (message.round == 0) watch.reported.clear();
    if (generation == watch.newest) {  // The restart count never decreases.
      REQUIRE(message.restart_count >= watch.restart_count);
      watch.restart_count = message.restart_count;
    }
    REQUIRE(message.group_world_size >= watch.run.min_nodes);
    REQUIRE(message.group_world_size <= watch.run.max_nodes);
    node.workers = {generation, now};
    node.told.reset();
    check_overlap_after(node.run_id, generation);
  }
  /// Checks after the fence bound that no worker of an older round runs.
  void check_overlap_after(const std::string& run_id, std::int64_t generation) {
    at(now + kFenceBound + kMaxStop + 100ms, [this, run_id, generation] {
      for (const auto& node : nodes) {
        if (!node->alive || node->workers.generation == 0 || node->run_id != run_id) continue;
        if (may_overlap(run_id, node->workers.generation)) continue;
        if (missed_a_life(*node, generation)) continue;
        INFO(describe());
        INFO("node " << node->index << " has workers of " << node->workers.generation
                     << " beside those of " << generation);
        REQUIRE(node->workers.generation >= generation);
      }
    });
  }
  /// An open case in docs/rendezvous.md: all nodes of the round work, and the host does not know
  /// it, because it has forgotten the round, or takes a node for dead whose connection was closed.
  bool may_overlap(const std::string& run_id, std::int64_t generation) const {
    const Round& round = watches_.at(run_id).rounds.at(generation);
    const bool whole = round.ranks.size() == static_cast<std::size_t>(round.world) &&
                       std::all_of(round.ranks.begin(), round.ranks.end(), [&](const auto& rank) {
                         return rank.second->alive && rank.second->workers.generation == generation;
                       });
    const bool forgotten = host_may_forget() && round.host_life != life;
    const bool closed = std::any_of(round.ranks.begin(), round.ranks.end(), [&](const auto& rank) {
      return lost_connections_.contains(rank.second);
    });
    return whole && (forgotten || closed);
  }
  bool host_may_forget() const { return !state || failing_writes > 0; }
  /// The other open case: a host without a disk made the newer round, and was killed between two
  /// tries of the node to connect. The node has only seen refused connections.
  bool missed_a_life(const SimNode& node, std::int64_t newer) const {
    const auto& rounds = watches_.at(node.run_id).rounds;
    const int made_it = rounds.at(newer).host_life;
    return host_may_forget() && !node.connection &&
           rounds.at(node.workers.generation).host_life < made_it && made_it < life;
  }
  /// The name of a new notice, which is its reason.
  std::string give_notice(Duration left) {
    const std::string name = "notice " + std::to_string(notices_.size());
    notices_[name] = now + left;
    return name;
  }
  /// Checks a line about the end of a round or of the run: for a notice it ends only at its
  /// deadline, or when all of its nodes have saved.
  void check_notice(const std::string& text) {
    const auto begin = text.find(" will go (");
    const bool ends = text.find("cause=notice") != std::string::npos ||
                      text.find("preempted=true") != std::string::npos;
    if (begin == std::string::npos || !ends) return;
    const auto name = text.substr(begin + 10, text.find(')', begin) - begin - 10);
    if (text.find("the deadline is here") != std::string::npos) return check_deadline(name);
    if (text.find("all nodes have saved") == std::string::npos) return;
    INFO(describe());
    const Rendezvous* run = service->rendezvous("job");
    REQUIRE(run != nullptr);
    for (const NodeView& member : run->view(0, kMaxViewedNodes, now).nodes)
      for (const auto& node : nodes)
        if (node->alive && "node" + std::to_string(node->index) == member.name.addr &&
            node->workers.generation == run->generation()) {
          INFO("node " << node->index);
          REQUIRE(node->saved_generation == run->generation());
        }
  }
  void check_deadline(const std::string& name) const {
    INFO(name << "\n" << describe());
    REQUIRE(notices_.contains(name));
    // A record has whole milliseconds.
    REQUIRE(now + 3ms >= notices_.at(name));
  }
  void failed(const SimNode& node) {
    watches_.at(node.run_id).failed.insert(node.workers.generation);
  }
  /// Whether a node that still lives has reported a failure of that round in time.
  bool has_reported(const std::string& run_id, std::int64_t generation) const {
    return reported_generations(run_id).contains(generation);
  }
  /// Checks that failures are counted: at most one for each round that had a failure, and one for
  /// each round of which a node has reported a failure, when it resumed, before the next round. A
  /// host that may forget forgets what only dead nodes knew.
  void check_restarts(const std::string& run_id) const {
    const Rendezvous* run = service->rendezvous(run_id);
    if (run == nullptr || run->outcome()) return;
    INFO(describe());
    const auto used = static_cast<std::size_t>(run->restarts_used());
    CHECK(used <= watches_.at(run_id).failed.size());
    if (!host_may_forget()) CHECK(used >= reported_generations(run_id).size());
  }
  std::string describe() const {
    std::string text;
    for (const auto& node : nodes)
      text += "node " + std::to_string(node->index) + (node->alive ? "" : " dead") + " phase " +
              std::to_string(static_cast<int>(node->participant.phase())) + " generation " +
              std::to_string(node->workers.generation) +
              (node->connection ? " connected " : " cut ") + node->end + " said " +
              node->last_printed + "\n";
    for (const auto& [run_id, watch] : watches_)
      if (const Rendezvous* rendezvous = service->rendezvous(run_id))
        text += run_id + ": " + std::string(rendezvous->reason()) + "\n";
    for (const std::string& note : notes)
      text += note + "\n";
    return text;
  }

  Prng prng;
  Instant now{1h};
  // One account for each life of the host; the last one is the current life.
  std::deque<MemoryAccount> accounts;
  std::unique_ptr<RunService> service;
  std::vector<std::unique_ptr<SimNode>> nodes;
  std::vector<std::string> notes;
  int life = 0;
  Instant down_until{};
  Instant stopped_until{};
  std::unique_ptr<MemoryState> state;
  std::uint64_t writes = 0;
  std::uint64_t crash_at_write = 0;
  bool crash_when_durable = false;
  int failing_writes = 0;  // The chance of a failing write, in percent.
  bool has_torchrun_nodes = false;
  bool breaks_after_welcome = false;  // Each new connection breaks before anything else is sent.
  int welcomes = 0;
  /// Called with the effects for the c10d door.
  std::function<void(const RunEffect&)> on_effect;
  /// Called when the host is killed, to break connections of other kinds.
  std::function<void()> on_kill;

 private:
  std::map<std::string, Instant> notices_;  // The deadlines.
  std::set<std::int64_t> reported_generations(const std::string& run_id) const {
    std::set<std::int64_t> all;
    for (const auto& [node, generations] : watches_.at(run_id).reported)
      if (node->alive && node->participant.phase() != Participant::Phase::Over)
        all.insert(generations.begin(), generations.end());
    return all;
  }
  struct Round {
    std::int64_t round = 0;
    int world = 0;
    int host_life = 0;  // The life of the host that made the round.
    std::map<int, SimNode*> ranks;
  };
  /// The rounds seen so far of one run.
  struct Watch {
    RunSettings run;
    std::map<std::int64_t, Round> rounds;
    std::int64_t newest = 0;
    int restart_count = 0;
    std::set<std::int64_t> failed;  // Generations of rounds in which workers have failed.
    /// Generations of rounds of which a node has reported a failure in a resume, in time.
    std::map<const SimNode*, std::set<std::int64_t>> reported;
  };
  RunServiceOptions options_;
  EventQueue events_;
  std::map<std::uint32_t, Link> links_;
  std::uint32_t next_link_ = 1;
  std::optional<Instant> host_wakes_;
  std::uint64_t durable_ = 0;
  std::map<std::string, Watch> watches_;
  std::set<SimNode*> lost_connections_;  // Nodes whose connection was closed, without a new one.
};

}  // namespace muster::testing
