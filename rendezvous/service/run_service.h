// Every run whose rendezvous is here, by run id: both doors' requests in, what to send out.
//
// An agent serves its own run, musterd any number of them. Pure: connections are numbers, time is
// an argument, and what is to be done is handed out as effects, which the shell carries out in
// their order. docs/rendezvous.md.
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

#include "rendezvous/core/rendezvous.h"
#include "rendezvous/core/rendezvous_turns.h"
#include "rendezvous/core/shared_bytes.h"
#include "rendezvous/core/tls_allow.h"
#include "rendezvous/service/held_effects.h"
#include "rendezvous/service/node_reports.h"
#include "rendezvous/service/run_effect.h"
#include "rendezvous/service/run_state.h"
#include "rendezvous/wire/native_codec.h"
#include "rendezvous/wire/state_key.h"

namespace muster {

/// The end of the key for which a torchrun node waits when its workers have ended well.
inline constexpr std::string_view kExitBarrierKey =
    "/torchelastic/agent/terminal_state/last_member";

struct RunServiceOptions {
  std::string muster_version;
  /// An agent's: this run and no other, and once only. Empty: any.
  std::string only_run;
  /// Of only_run: when this host goes, another agent goes on with the run's record. As at musterd,
  /// a run that has ended can begin again.
  bool hands_over = false;
  RendezvousSetup setup = {};
  /// A torchrun client that is no node of a run cannot close it. It is told that it has.
  bool only_nodes_close = false;
  TurnLimits turns = {};
  std::size_t runs = 10'000;
  /// Runs that one connection of the c10d door may take part in.
  std::size_t runs_per_connection = kMaxRunsPerConnection;
  /// Runs that were begun from one address.
  std::size_t runs_per_peer = kMaxRunsPerPeer;
  /// A run that nobody is in any more is forgotten after this; if it has ended, its id can be used
  /// again at once.
  Duration forget_after = std::chrono::seconds(60);
  /// How long a torchrun rank 0 may take to say where its workers meet: it looks once a second.
  Duration master_patience = std::chrono::seconds(3);
  /// To those who wait (for a round, or for the others to finish too), at most so often, and not
  /// before they have waited for so long: for whom.
  Duration waiting_interval = std::chrono::seconds(1);
  /// Whether what changes is to be recorded: take_changes(), then recorded().
  bool recorded = false;
  /// Whether another process may take over the state: then nothing is acknowledged before it is
  /// durable, whatever keeps it from that.
  bool shared_state = false;
  /// Changes that are not durable after this hold up nobody any more: the disk hangs.
  Duration state_patience = std::chrono::seconds(5);
  std::size_t history = 1'000;  // Ended runs that are remembered.
};

// --- a compare-and-set's outcome -----------------------------------------------------------------

/// The store's business, as any other key.
struct NotOfARun {
  std::string surprise = {};  // For the log: why it is, though it looked like a run's until now.
};
struct StateNow {
  SharedBytes text;
};
struct HeldBack {};  // AnswerHeld follows; until then nothing else of this client is served.
struct StateRefused {
  std::string reason;  // The connection is to be closed.
};
using CompareSetOutcome = std::variant<NotOfARun, StateNow, HeldBack, StateRefused>;

struct StateCompareSet {
  std::string_view key;
  std::string_view expected;
  std::string_view desired;
  bool stored = false;       // The store has a value of its own under the key.
  std::string peer_address;  // The client's, numeric.
};

struct NativeAnswer {
  std::optional<NativeMessage> reply;
  std::string close;  // Why the connection is to be closed once `reply` is sent; empty: it stays.
  /// What kind of reason that is, for the log; lives for ever.
  std::string_view cause = "native message refused";
};

class RunService {
 public:
  struct Time {
    Instant now;
    WallTime wall;
  };

  explicit RunService(RunServiceOptions options);

  /// Whether `key` is that of a known run's state: no matter what the store says.
  bool has_state(std::string_view key) const { return find(key) != nullptr; }
  /// The state as it is now, for a client that asked for it, or only whether it is there (`key` is
  /// known).
  SharedBytes read_state(ConnectionId from, std::string_view key, Time time);
  /// May make a run known: then has_state() is true from now on.
  CompareSetOutcome compare_set(ConnectionId from, const StateCompareSet& request, Time time);

  /// Leaves `key` to the store, if nobody has ever been in its run: it is not a rendezvous, then.
  bool hand_back(std::string_view key);

  /// A message of the native door; `peer_address` is the client's, numeric.
  NativeAnswer receive(ConnectionId from, std::string_view json, const std::string& peer_address,
                       Time time);

  /// `client` begins to wait for this key alone of the store's (empty: for others, too), or has
  /// waited. Only of clients that have asked for a state.
  void waits(ConnectionId client, std::optional<std::string_view> key, Time time);
  /// The connection is closed. Its number may be used again once the effects are taken; those that
  /// are for it come to nothing.
  void gone(ConnectionId client, Time time);

  std::optional<Instant> next_deadline() const;
  void time_passed(Time time);
  /// The shell was to call time_passed() `late` ago. If that is long, this host was frozen or
  /// starved and could hear nobody: no node is judged by that time. To be called before
  /// time_passed().
  void woke_late(Duration late, Time time);

  /// Effects that wait for changes to be durable come later.
  bool has_effects() const { return !effects_.empty() || held_.has_released(); }
  std::vector<RunEffect> take_effects();

  /// Begins with what an earlier host has recorded. To be called before everything else.
  void restore(StoredState state, Time time);
  /// What is to be recorded since the last call; nothing if nothing is.
  std::optional<StateChanges> take_changes(Time time);
  /// How far the changes are durable; with a problem, no effect waits for the others, and no run
  /// begins, until everything is durable.
  void recorded(const StateReport& report, Time time);
  /// Why changes are not durable. Empty: nothing is wrong.
  const std::string& state_problem() const { return state_problem_; }
  const std::deque<EndedRun>& history() const { return history_; }

  /// What is there already stays, also beyond a smaller limit.
  void set_limits(std::size_t runs, Duration forget_after) {
    options_.runs = runs;
    options_.forget_after = forget_after;
  }
  /// Nobody new is let in through the native door, and no run begins.
  void drain() { draining_ = true; }
  /// Connections that have asked for a state: torchrun nodes.
  std::size_t state_clients() const { return state_clients_; }
  std::size_t runs() const { return runs_.size(); }
  /// Runs that this connection has asked for, or has said hello to.
  std::size_t runs_of(ConnectionId client) const;
  /// Whether the run of this key is one of them.
  bool is_client(ConnectionId client, std::string_view key) const;
  /// The states' texts count there, which is not null and outlives this.
  void count_in(MemoryAccount* account) { account_ = account; }
  /// Nothing if the run is not known.
  const Rendezvous* rendezvous(std::string_view run_id) const;

  // For people (run_views.cc): bounded copies, made when they are asked for.
  /// At most `count` runs, and kMaxViewedRuns, from the `offset`th on, of those in the scope.
  RunsView view_runs(std::size_t offset, std::size_t count, Time time,
                     const RunScope& scope = {}) const;
  /// Nothing if the run is not known. At most `nodes` nodes, and kMaxViewedNodes.
  struct NodePage {
    std::size_t offset = 0;
    std::size_t nodes = 0;
  };
  std::optional<RunView> view_run(std::string_view id, NodePage page, Time time) const;
  RunsFigures figures(Instant now) const;
  /// What an operator asks for. Why it cannot be, as a sentence; empty if it is done. Nothing if
  /// the run is not known.
  /// With a `number`, an OperatorAnswered of it follows when it is done.
  std::optional<std::string> operate(std::string_view id, const OperatorAsked& asked, Time time,
                                     std::optional<std::uint64_t> number = std::nullopt);
  /// Asks the node that has this global rank; `question.local_rank` and `question.to` are filled
  /// in. Why it cannot be asked, as a sentence; empty: a QuestionAnswered of the question's number
  /// follows. Nothing if the run is not known.
  std::optional<std::string> ask(std::string_view id, int rank, NodeAsked question, Time time);
  /// Nobody waits for the answer any more.
  void forget_question(std::uint64_t number) { questions_.erase(number); }

 private:
  struct Run {
    explicit Run(std::size_t& report_bytes) : reports(report_bytes) {}

    std::string key;
    std::unique_ptr<Rendezvous> rendezvous;  // Another one when the run begins again; never null.
    CompareSetTurns turns;
    std::uint64_t generation = 0;
    std::set<std::uint32_t> clients;
    /// Muster nodes that wait for a round, or for the others to finish, too.
    struct Waiter {
      Instant tell_at{};  // Not before: most waits are over by then.
      std::string told;
    };
    std::map<std::uint32_t, Waiter> waiting;
    KeptBytes text;
    std::optional<std::uint64_t> text_revision;
    std::string peer;                      // The address that it was begun from.
    std::optional<Instant> deserted;       // Nobody is in it, since then.
    std::optional<Instant> idle;           // As in idle_: deserted, and without connections.
    std::optional<Instant> deadline;       // As in deadlines_.
    bool may_tell = false;                 // Something has changed since those who wait were told.
    Instant tell_at{};                     // Not before.
    bool was_preparing = false;            // When those who wait were last to be told.
    std::optional<Instant> gathering;      // Since the round's first node came.
    std::size_t joins = 0;                 // In this generation.
    std::optional<Instant> repeat_master;  // If it is still missing then.
    std::optional<std::int64_t> noted_round;
    RunHistory history;
    NodeReports reports;
    bool noted_begin = false;
    bool noted_end = false;
    bool noted_closed = false;
    bool noted_broken = false;

    std::string_view id() const { return std::string_view(key).substr(kStateKeyPrefix.size()); }
  };
  struct Client {
    Run* run = nullptr;
    bool native = false;
    bool resumes = false;           // It knows what a later muster answers.
    bool ended = false;             // It was told that the run is over.
    std::string exit_barrier = {};  // The key for which it waits at its end.
    bool let_go = false;            // The others go on without it.
    std::uint64_t generation = 0;
    bool answers = false;   // It can be asked.
    std::string node = {};  // Its name when it last reported.
    ReportLimiter reports = {};
  };

  Run* find(std::string_view key) const;
  /// Runs that may give way to others, the longest deserted first.
  using IdleRuns = std::set<std::pair<Instant, std::string>>;
  struct Peer {
    std::size_t runs = 0;
    IdleRuns idle;
  };
  CompareSetOutcome begin_by_state(ConnectionId from, const StateCompareSet& request, Run*& run);
  std::unique_ptr<Rendezvous> new_rendezvous(std::int64_t generation = 0, bool ended = false);
  Run* make_run(const std::string& key, const std::string& peer);
  bool make_room(const std::string& peer);
  bool forget_oldest(const IdleRuns& idle);
  void set_idle(Run& run, std::optional<Instant> since);
  /// The run is as old as this host, and ends with it.
  bool has_one_life() const { return !options_.only_run.empty() && !options_.hands_over; }
  std::string full() const;
  bool reusable(const Run& run, Instant now) const;
  void begin_again(Run& run);
  void forget(Run& run);
  void erase(Run& run);
  /// Calls `work`, and ends the run if that throws: the other runs go on. Whether it did not.
  template <typename Work>
  bool guard(Run& run, Instant now, const Work& work);
  void tend(Run& run, Time time);
  void leave(const Client& client, ConnectionId connection, Time time);

  bool has_too_many_runs(ConnectionId client) const;
  bool add_state_client(ConnectionId from, Run& run);
  const SharedBytes& text_of(Run& run, Time time);
  boost::system::result<StateProposal, StateRefused> read_proposal(Run& run, ConnectionId from,
                                                                   const StateCompareSet& request,
                                                                   Time time);
  CompareSetOutcome propose(Run& run, const StateProposal& proposal, std::string_view desired,
                            Time time);
  bool answer_released(Run& run, Time time, std::optional<ConnectionId> asking = std::nullopt);

  NativeAnswer receive_hello(ConnectionId from, const NativeHello& hello,
                             const std::string& peer_address);
  void on_event(ConnectionId from, Client& client, const RendezvousEvent& event, Time time);
  bool may_join(ConnectionId from, Client& client, const NodeJoined& event, Instant now);
  void carry_out(Run& run, RendezvousActions actions, Instant now);
  void let_go(Run& run, ConnectionId client);
  bool was_let_go(ConnectionId client, const Run& run) const;
  void sent(Run& run, ConnectionId to, const NativeMessage& message);
  void begin_to_wait(Run& run, ConnectionId client, Instant now);
  void tell_waiting(Run& run, Instant now);
  void repeat_master(Run& run);
  void settle(Run& run, Instant now);

  // run_recording.cc: what outlives this host.
  bool is_recording() const;
  void record_changes(Run& run, Instant now);
  void record_end(const Run& run);
  void restore(StoredRun stored, Time time);
  void note_wall_clock(Time time) { wall_ms_ = std::max(wall_ms_, time.wall.microseconds / 1'000); }
  void state_fails(const std::string& why);
  CompareSetOutcome when_recorded(ConnectionId from, CompareSetOutcome outcome);

  RunSummary summary_of(const Run& run) const;
  RunsView view_runs_of(const RunScope& scope, std::size_t offset, std::size_t count,
                        Time time) const;
  // run_questions.cc: what nodes report, and what they are asked.
  void receive(ConnectionId from, Client& client, NodeReport report, Instant now);
  void receive(ConnectionId from, NodeAnswered answered);
  void end_questions(ConnectionId client);
  std::optional<ConnectionId> native_client(const Run& run, const NodeName& name) const;

  // run_notes.cc: the log, and the run's history.
  void record(Run& run, RunEvent event, Instant now);
  void note_begin(Run& run, Instant now);
  void note_forgotten(const Run& run);
  void note_new_life(const Run& run);
  void note_join(Run& run, const NodeJoined& event, Instant now);
  void note_gone(Run& run, const NodeGone& gone, Instant now);
  void note_operation(Run& run, const OperatorAsked& asked, Instant now);
  void note_kept_out(const Run& run, const NodeName& name);
  void note_held_back(const Run& run, const NodeHeldBack& held);
  void note_skew(const Run& run, const ClockSkewSeen& seen);
  void note_restart(Run& run, const RendezvousActions& actions, Instant now);
  void note_recovery(Run& run, const RendezvousActions& actions, Instant now);
  void note_progress(Run& run, Instant now);
  void note_broken(Run& run, Instant now);
  void note(RunNote::Level level, std::string line);

  RunServiceOptions options_;
  std::size_t report_bytes_ = 0;  // Before the runs, which count in it until their ends.
  std::map<std::string, std::unique_ptr<Run>, std::less<>> runs_;  // By key.
  /// A torchrun node's connection may be used for several runs, a muster node's is for one.
  std::map<std::uint32_t, std::vector<Client>> clients_;
  std::set<std::pair<Instant, std::string>> deadlines_;
  IdleRuns idle_;
  std::map<std::string, Peer> peers_;                // By address; only of runs that there are.
  std::map<std::uint64_t, ConnectionId> questions_;  // By number: who is asked.
  std::vector<RunEffect> effects_;
  HeldEffects held_;  // Until changes are durable.
  StateChanges changes_;
  std::uint64_t turn_ = 0;     // The number of the changes that were taken last.
  std::uint64_t durable_ = 0;  // And of those that are durable.
  std::optional<Instant> unrecorded_since_;
  std::string state_problem_;
  std::deque<EndedRun> history_;  // Oldest first.
  std::size_t state_clients_ = 0;
  RunCounters counters_;
  bool draining_ = false;
  std::int64_t wall_ms_ = 0;  // Since 1970; the latest that was seen.
  MemoryAccount* account_ = nullptr;
};

}  // namespace muster
