// Every run whose rendezvous is here, by run id: both doors' requests in, what to send out.
//
// An agent serves its own run, musterd any number of them. Pure: connections are numbers, time is
// an argument, and what is to be done is handed out as effects, which the shell carries out in
// their order. docs/rendezvous.md.
#pragma once

#include <cstdint>
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
#include "rendezvous/wire/native_codec.h"

namespace muster {

/// In front of a run id: the key of its state, as it is on the wire.
inline constexpr std::string_view kStateKeyPrefix = "/torch.rendezvous.";
/// The end of the key for which a torchrun node waits when its workers have ended well.
inline constexpr std::string_view kExitBarrierKey =
    "/torchelastic/agent/terminal_state/last_member";

struct RunServiceOptions {
  std::string muster_version;
  /// An agent's: this run and no other, and once only. Empty: any.
  std::string only_run;
  RendezvousSetup setup = {};
  TurnLimits turns = {};
  std::size_t runs = 10'000;
  /// A run that nobody is in any more is forgotten after this; if it has ended, its id can be used
  /// again at once.
  Duration forget_after = std::chrono::seconds(60);
  /// How long a torchrun rank 0 may take to say where its workers meet: it looks once a second.
  Duration master_patience = std::chrono::seconds(3);
  /// To those who wait (for a round, or for the others to finish too), at most so often, and not
  /// before they have waited for so long: for whom.
  Duration waiting_interval = std::chrono::seconds(1);
};

// --- effects: what the shell is to do ------------------------------------------------------------

struct SendNative {
  ConnectionId to;
  NativeMessage message;
  /// To rank 0, with its round: torchrun nodes, to which it is to say where the store is.
  std::vector<ConnectionId> readers = {};
};
/// The reply of a compare-and-set that was held back.
struct AnswerHeld {
  ConnectionId to;
  SharedBytes text;
};
/// The store is to have a value under `state_key`, for those who ask only whether it is there.
struct ShowState {
  std::string state_key;
};
/// Remove `state_key`.ROUND/... from the store; with_state: the key itself, too.
struct ForgetRun {
  std::string state_key;
  bool with_state = false;
};
/// A torchrun rank 0 says where its workers meet in its first round only, and newcomers wait for it
/// for ever. If nobody has said it for `round`, repeat what was said last with this address.
struct RepeatMaster {
  std::string state_key;
  std::int64_t round = 0;
  std::string addr;  // Rank 0's.
};
struct RunNote {
  enum class Level { Debug, Info, Warning };
  Level level = Level::Info;
  std::string line;
};
/// Those who wait for `key` need not any more.
struct OpenBarrier {
  std::string key;
};
using RunEffect =
    std::variant<SendNative, AnswerHeld, ShowState, OpenBarrier, ForgetRun, RepeatMaster, RunNote>;

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
  bool stored = false;  // The store has a value of its own under the key.
};

struct NativeAnswer {
  std::optional<NativeMessage> reply;
  std::string close;  // Why the connection is to be closed once `reply` is sent; empty: it stays.
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

  bool has_effects() const { return !effects_.empty(); }
  std::vector<RunEffect> take_effects() { return std::exchange(effects_, {}); }

  /// Nobody new is let in through the native door, and no run begins.
  void drain() { draining_ = true; }
  /// Connections that have asked for a state: torchrun nodes.
  std::size_t state_clients() const { return state_clients_; }
  std::size_t runs() const { return runs_.size(); }
  /// Nothing if the run is not known.
  const Rendezvous* rendezvous(std::string_view run_id) const;

 private:
  struct Run {
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
    SharedBytes text;
    std::optional<std::uint64_t> text_revision;
    std::optional<Instant> deserted;       // Nobody is in it, since then.
    std::optional<Instant> deadline;       // As in deadlines_.
    bool may_tell = false;                 // Something has changed since those who wait were told.
    Instant tell_at{};                     // Not before.
    bool was_preparing = false;            // When those who wait were last to be told.
    std::optional<Instant> gathering;      // Since the round's first node came.
    std::size_t joins = 0;                 // In this generation.
    std::optional<Instant> repeat_master;  // If it is still missing then.
    std::optional<std::int64_t> noted_round;
    bool noted_end = false;
    bool noted_closed = false;

    std::string_view id() const { return std::string_view(key).substr(kStateKeyPrefix.size()); }
  };
  struct Client {
    Run* run = nullptr;
    bool native = false;
    bool ended = false;             // It was told that the run is over.
    std::string exit_barrier = {};  // The key for which it waits at its end.
    bool let_go = false;            // The others go on without it.
    std::uint64_t generation = 0;
  };

  Run* find(std::string_view key) const;
  CompareSetOutcome begin_by_state(const StateCompareSet& request, Run*& run);
  std::unique_ptr<Rendezvous> new_rendezvous();
  Run* make_run(const std::string& key);
  bool make_room();
  bool reusable(const Run& run, Instant now) const;
  void begin_again(Run& run);
  void forget(Run& run);
  void erase(Run& run);

  void add_state_client(ConnectionId from, Run& run);
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

  // run_notes.cc: the log.
  void note_join(Run& run, const NodeJoined& event, Instant now);
  void note_gone(const Run& run, const NodeGone& gone);
  void note_skew(const Run& run, const ClockSkewSeen& seen);
  void note_restart(const Run& run, const RendezvousActions& actions);
  void note_progress(Run& run, Instant now);
  void note(RunNote::Level level, std::string line);

  RunServiceOptions options_;
  std::map<std::string, std::unique_ptr<Run>, std::less<>> runs_;  // By key.
  /// A torchrun node's connection may be used for several runs, a muster node's is for one.
  std::map<std::uint32_t, std::vector<Client>> clients_;
  std::set<std::pair<Instant, std::string>> deadlines_;
  std::vector<RunEffect> effects_;
  std::size_t state_clients_ = 0;
  bool draining_ = false;
};

}  // namespace muster
