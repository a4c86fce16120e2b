// All runs whose rendezvous this process hosts, by run id: takes requests of both doors and returns
// effects.
//
// An agent serves its own run, musterd any number of runs. Pure: connections are numbers, time is
// an argument, and the shell carries out the effects in their order. docs/rendezvous.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/access/tls_allow.h"
#include "rendezvous/host/durability_gate.h"
#include "rendezvous/host/hosted_run.h"
#include "rendezvous/host/node_questions.h"
#include "rendezvous/host/node_reports.h"
#include "rendezvous/host/rendezvous.h"
#include "rendezvous/host/run_effect.h"
#include "rendezvous/host/run_log.h"
#include "rendezvous/host/run_registry.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/rounds/limits.h"
#include "rendezvous/state/run_state.h"
#include "rendezvous/store/shared_bytes.h"
#include "rendezvous/torchrun/exit_barrier.h"
#include "rendezvous/torchrun/rendezvous_turns.h"
#include "rendezvous/torchrun/state_key.h"

namespace muster {

struct RunServiceOptions {
  std::string muster_version;
  /// Set by an agent: only this run is served, and only once. Empty: any run.
  std::string only_run;
  /// With only_run: after this host another agent continues with the run's record. As at musterd, a
  /// run that has ended can begin again.
  bool hands_over = false;
  /// For the welcome: the id of the state. One that was kept has its own. Empty: not said.
  std::string state_id = {};
  RendezvousSetup setup = {};
  /// A torchrun client that is no node of a run cannot close it, but is told that it has closed it.
  bool only_nodes_close = false;
  TurnLimits turns = {};
  std::size_t runs = 10'000;
  /// How many runs one connection of the c10d door may take part in.
  std::size_t runs_per_connection = kMaxRunsPerConnection;
  /// How many runs may exist that were begun from one address.
  std::size_t runs_per_peer = kMaxRunsPerPeer;
  /// A run without nodes is forgotten after this time. If it has ended, its id can be used again at
  /// once.
  Duration forget_after = std::chrono::seconds(60);
  /// How long a torchrun rank 0 may take to publish its master address. It checks once a second.
  Duration master_patience = std::chrono::seconds(3);
  /// How often a node that waits for a round, or for other nodes to finish, is told which nodes are
  /// missing. The first message is sent after one interval.
  Duration waiting_interval = std::chrono::seconds(1);
  /// Whether changes are recorded: the shell calls take_changes(), then recorded().
  bool recorded = false;
  /// Whether another process may take over the state. Then nothing is acknowledged before it is
  /// durable, however long that takes.
  bool shared_state = false;
  /// If changes are not durable after this time, the disk hangs: effects no longer wait for it.
  Duration state_patience = std::chrono::seconds(5);
  std::size_t history = 1'000;  // How many ended runs are remembered.
  /// Those of them that are kept whole, for people: with their failures, reports and events, until
  /// newer ones take their places, their id begins again, or a new run needs the room. The others
  /// are forgotten after `forget_after`.
  std::size_t kept_ended_runs = 0;
  /// The events of a run are numbered from the clock's milliseconds on, not from 1. So the events
  /// of a host that was started again, and of a later run of that id, have higher numbers.
  bool numbers_events_by_clock = false;
};

// --- the outcome of a compare-and-set ------------------------------------------------------------

/// The key belongs to no run: the store handles it, as any other key.
struct NotOfARun {
  std::string surprise = {};  // For the log: why the key no longer counts as a run's key.
};
struct StateNow {
  SharedBytes text;
};
struct HeldBack {};  // AnswerHeld follows. Until then no other request of this client is served.
struct StateRefused {
  std::string reason;  // The shell must close the connection.
};
using CompareSetOutcome = std::variant<NotOfARun, StateNow, HeldBack, StateRefused>;

struct StateCompareSet {
  std::string_view key;
  std::string_view expected;
  std::string_view desired;
  bool stored = false;  // The store already has a value under the key, other than "no state yet".
  std::string peer_address;  // The client's numeric address.
};

struct NativeAnswer {
  std::optional<NativeMessage> reply;
  std::string close;  // Why the connection must be closed after `reply` is sent. Empty: it stays.
  /// The kind of reason, for the log. A text with static lifetime.
  std::string_view cause = "native message refused";
  /// False: a node of another job came here, and the nodes that wait are told of it.
  bool is_fault = true;
};

class DecodedTexts;

class RunService {
 public:
  struct Time {
    Instant now;
    WallTime wall;
  };

  explicit RunService(RunServiceOptions options);

  /// Whether `key` is the state key of a known run. It does not depend on the store's keys.
  bool has_state(std::string_view key) const { return find(key) != nullptr; }
  /// The present state, for a client that reads `key`. The run must be known.
  SharedBytes read_state(ConnectionId from, std::string_view key, Time time);
  /// A client checks whether `key` exists, or waits for it. Does the same as read_state(), but does
  /// not render the state.
  void check_state(ConnectionId from, std::string_view key, Time time);
  /// The nodes of all states that were rendered and encoded so far. The shell counts this work.
  std::uint64_t rendered_nodes() const { return rendered_nodes_; }
  /// May create a run. Then has_state() is true from now on.
  CompareSetOutcome compare_set(ConnectionId from, const StateCompareSet& request, Time time);

  /// If no node has ever joined the run of `key`, removes the run: from now on the store handles
  /// the key. Returns whether it did.
  bool return_key_to_store(std::string_view key);

  /// Handles a message of the native door. `peer_address` is the client's numeric address.
  NativeAnswer receive(ConnectionId from, std::string_view json, const std::string& peer_address,
                       Time time);

  /// `client` begins to wait in the store: for `key`, or for several keys if `key` is an empty
  /// text. std::nullopt: its wait has ended. Ignored for clients that have not asked for a state.
  void waits(ConnectionId client, std::optional<std::string_view> key, Time time);
  /// The connection is closed. Effects for it are dropped, so its number may be used again at once.
  void disconnect(ConnectionId client, Time time);

  std::optional<Instant> next_deadline() const;
  void time_passed(Time time);
  /// The shell calls time_passed() later than planned, by `late`. If that is long, this host was
  /// frozen or starved and received no messages: this time counts against no node. To be called
  /// before time_passed().
  void woke_late(Duration late, Time time);

  /// Effects that wait for durable changes are not counted until they are released.
  bool has_effects() const { return gate_.has_effects(); }
  std::vector<RunEffect> take_effects() { return gate_.take_effects(); }

  /// Starts with the record of an earlier host. To be called before everything else.
  void restore(StoredState state, Time time);
  /// The changes to record since the last call. Empty if there are none.
  std::optional<StateChanges> take_changes(Time time) { return gate_.take_changes(time.now); }
  /// Says which changes are durable. With a problem, effects no longer wait (unless the state is
  /// shared), and no run begins, until the changes are durable that exist now.
  void recorded(const StateReport& report, Time time);
  /// Why changes are not durable. Empty: no problem.
  const std::string& state_problem() const { return gate_.problem(); }
  const std::deque<EndedRun>& history() const { return history_; }

  /// Existing runs stay, even if they exceed a smaller limit.
  void set_limits(std::size_t runs, Duration forget_after) {
    options_.runs = runs;
    options_.runs_per_peer = runs_for_one_peer(runs);
    options_.forget_after = forget_after;
  }
  /// From now on the native door refuses new clients, and no run begins.
  void drain() { draining_ = true; }
  /// The number of connections that have asked for a state: torchrun nodes.
  std::size_t state_clients() const { return state_clients_; }
  std::size_t runs() const { return runs_.size(); }
  /// The number of runs whose state this connection has asked for, or that its hello names.
  std::size_t runs_of(ConnectionId client) const;
  /// Whether the run of this key is one of the runs that runs_of() counts.
  bool is_client(ConnectionId client, std::string_view key) const;
  /// The memory of the states' texts is counted in `account`, which is not null and outlives this.
  void count_in(MemoryAccount* account) { account_ = account; }
  /// Null if the run is not known.
  const Rendezvous* rendezvous(std::string_view run_id) const;

  // For people (run_people.cc): bounded copies, made when somebody asks.
  /// The runs in `scope` from index `offset` on: at most `count`, and at most kMaxViewedRuns.
  RunsView view_runs(std::size_t offset, std::size_t count, Time time,
                     const RunScope& scope = {}) const;
  /// Empty if the run is not known. With at most `nodes` nodes, and at most kMaxViewedNodes.
  struct NodePage {
    std::size_t offset = 0;
    std::size_t nodes = 0;
  };
  std::optional<RunView> view_run(std::string_view id, NodePage page, Time time) const;
  RunsFigures figures(Instant now) const;
  /// Does what an operator asks for. Returns an empty text, or a sentence that says why it is
  /// impossible. std::nullopt if the run is not known. With a `number`, an OperatorAnswered with
  /// that number follows when it is done.
  std::optional<std::string> operate(std::string_view id, const OperatorAsked& asked, Time time,
                                     std::optional<std::uint64_t> number = std::nullopt);
  /// Asks the node that has this global rank. Fills in `question.local_rank` and `question.to`.
  /// Returns an empty text, and a QuestionAnswered with the question's number follows. Or returns a
  /// sentence that says why the node cannot be asked. std::nullopt if the run is not known.
  std::optional<std::string> ask(std::string_view id, int rank, NodeAsked question, Time time);
  /// The answer is no longer needed.
  void forget_question(std::uint64_t number) { questions_.forget(number); }

 private:
  using Run = HostedRun;
  struct Client {
    Run* run = nullptr;
    bool native = false;
    bool resumes = false;           // It understands answers to keep-alives and to resume.
    bool ended = false;             // It has been told that the run is over.
    std::string exit_barrier = {};  // The key for which it waits at the exit barrier.
    bool released_from_exit_barrier =
        false;  // It need not wait there: the other nodes go on without it.
    std::uint64_t generation = 0;
    bool answers = false;   // It answers questions (NodeAsked).
    bool notices = false;   // It understands PreemptionNotice.
    std::string node = {};  // The name it had with its latest report.
    ReportLimiter reports = {};
  };

  /// A node that asks to join a run id whose run is over, while the state cannot be recorded.
  struct HeldJoin {
    NodeJoined join;
    Instant until;
  };

  Run* find(std::string_view key) const { return runs_.find(key); }
  CompareSetOutcome begin_by_state(ConnectionId from, const StateCompareSet& request,
                                   DecodedTexts& texts, Run*& run);
  std::unique_ptr<Rendezvous> new_rendezvous(std::int64_t generation = 0, bool ended = false);
  Run* make_run(const std::string& key, const std::string& peer);
  bool make_room(const std::string& peer);
  void keep_ended(Run& run, Instant now);
  void drop_kept(Run& run);
  void note_failure_report(Run& run);
  /// The only run of this host lives exactly as long as the host.
  RunHistory new_history() const;
  bool has_one_life() const { return !options_.only_run.empty() && !options_.hands_over; }
  std::string full() const;
  bool reusable(const Run& run, Instant now) const;
  void begin_again(Run& run, Instant now);
  std::optional<Instant> forget_at(const Run& run) const;
  std::string remedy(const Run& run, Instant now) const;
  void forget_keys(Run& run, Instant now);
  void forget(Run& run);
  void erase(Run& run);
  /// Calls `work`. If it throws, ends this run only and returns false. Otherwise returns true.
  template <typename Work>
  bool guard(Run& run, Instant now, const Work& work);
  void tend(Run& run, Time time);
  void leave(const Client& client, ConnectionId connection, Time time);

  bool has_too_many_runs(ConnectionId client) const;
  bool add_state_client(ConnectionId from, Run& run);
  const SharedBytes& text_of(Run& run, Time time);
  void handle_reader(ConnectionId from, Run& run, Time time);
  boost::system::result<StateProposal, StateRefused> read_proposal(Run& run, ConnectionId from,
                                                                   const StateCompareSet& request,
                                                                   DecodedTexts& texts, Time time);
  CompareSetOutcome propose(Run& run, const StateProposal& proposal, std::string_view desired,
                            Time time);
  bool answer_released(Run& run, Time time, std::optional<ConnectionId> asking = std::nullopt);

  NativeAnswer receive_hello(ConnectionId from, const NativeHello& hello,
                             const std::string& peer_address, Time time);
  void on_event(ConnectionId from, Client& client, const RendezvousEvent& event, Time time);
  bool may_join(ConnectionId from, Client& client, const NodeJoined& event, Instant now);
  bool must_hold(const Run& run) const;
  void hold_join(ConnectionId from, const NodeJoined& join, Instant now);
  void join_held_nodes(Time time);
  void refuse_overdue_joins(Instant now);
  void apply(Run& run, RendezvousActions actions, Instant now);
  void release_from_exit_barrier(Run& run, ConnectionId client);
  bool was_released_from_exit_barrier(ConnectionId client, const Run& run) const;
  void send_message(Run& run, ConnectionId to, const NativeMessage& message);
  void begin_to_wait(Run& run, ConnectionId client, Instant now);
  void notify_waiting(Run& run, Instant now);
  void repeat_master(Run& run);
  void finish_change(Run& run, Instant now);

  // The state that outlives this host.
  void record_changes(Run& run, Instant now);
  void record_end(const Run& run);
  void restore(StoredRun stored, Time time);
  void record_wall_clock(Time time) {
    wall_ms_ = std::max(wall_ms_, time.wall.microseconds / 1'000);
  }
  CompareSetOutcome when_recorded(ConnectionId from, CompareSetOutcome outcome);

  RunSummary summary_of(const Run& run, Time time) const;
  RunsView view_runs_of(const RunScope& scope, std::size_t offset, std::size_t count,
                        Time time) const;
  void receive(ConnectionId from, Client& client, NodeReport report, Instant now);
  std::optional<ConnectionId> native_client(const Run& run, const NodeName& name) const;

  void follow_progress(Run& run, Instant now);
  void log_state_problem();

  RunServiceOptions options_;
  std::size_t report_bytes_ = 0;  // Declared before runs_: their destructors change it.
  RunRegistry runs_;
  /// A torchrun connection may take part in several runs, a muster connection in one.
  std::map<std::uint32_t, std::vector<Client>> clients_;
  DurabilityGate gate_;
  std::int64_t wall_ms_ = 0;  // The latest wall-clock time seen, in ms since 1970.
  RunLog log_{gate_, wall_ms_};
  NodeQuestions questions_{gate_};
  std::map<std::uint32_t, HeldJoin> held_joins_;  // By connection, while no run can begin.
  Instant refuse_joins_at_{};     // At or before the earliest `until` of held_joins_.
  std::deque<EndedRun> history_;  // Oldest first.
  std::set<std::pair<std::int64_t, std::string>> kept_;  // Run::ended_ms and key: see keep_ended().
  std::size_t state_clients_ = 0;
  std::uint64_t rendered_nodes_ = 0;
  bool draining_ = false;
  MemoryAccount* account_ = nullptr;
};

}  // namespace muster
