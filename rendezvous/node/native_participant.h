// The state machine of one muster node whose rendezvous host is a muster.
//
// Pure: events go in, actions come out, time and chance are arguments. It decides when to connect
// again, what a silent host means for the workers, and when this node must assume that it is cut
// off. The table is in docs/rendezvous_rules.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/node/wait_reminder.h"
#include "rendezvous/rounds/settings.h"

namespace muster {

class NativeParticipant {
 public:
  // --- events: from the agent ---
  struct JoinAsked {};
  struct WorkersHaveFailed {
    std::string what;
  };
  struct PartFinished {
    bool succeeded = true;
    std::string what;
  };
  struct LeaveAsked {};
  /// Answers HostStore.
  struct StoreHosted {
    std::int64_t round = 0;
    std::uint16_t port = 0;
  };
  struct StoreFailed {
    std::int64_t round = 0;
    std::string why;
  };
  /// Answer ExchangeThroughStore.
  struct ExchangeDone {
    std::int64_t round = 0;
  };
  struct ExchangeFailed {
    std::int64_t round = 0;
    std::string trouble;
  };
  struct ExitBarrierLeft {};
  // --- events: from the network ---
  /// Answers Connect, as ConnectFailed does.
  struct Connected {
    NativeWelcome welcome;
    bool proxied = false;  // Something between the two has its own connections with both.
  };
  struct ConnectFailed {
    enum class Why {
      NobodyListens,  // The host's machine refuses the connection: no process listens there.
      NoAnswer,
      NotWanted,  // A muster listens there and refuses this node.
    };
    /// For people, who must look for the cause in the right place.
    enum class Found {
      Nobody,   // Nothing answers there.
      NoWay,    // No packet has got there: the name has no address, or there is no route.
      Refusal,  // Something answers there, and refuses this node or is refused by it.
    };
    Why why = Why::NoAnswer;
    std::string text;
    Found found = Found::Nobody;
  };
  struct MessageReceived {
    NativeMessage message;
  };
  struct ConnectionBroke {
    std::string why;
  };
  /// At rank 0: another node, for which the host is silent, has reached this node's store.
  struct PeerReached {
    std::int64_t generation = 0;
    int group_rank = 0;
  };
  /// Answers AskReach. `whole` is also false if rank 0 did not answer.
  struct ReachAnswered {
    std::int64_t generation = 0;
    bool whole = false;
    Duration age{};  // How old rank 0's knowledge is.
  };
  struct TimeHasPassed {};
  using Event =
      std::variant<JoinAsked, WorkersHaveFailed, PartFinished, LeaveAsked, StoreHosted, StoreFailed,
                   ExchangeDone, ExchangeFailed, ExitBarrierLeft, Connected, ConnectFailed,
                   MessageReceived, ConnectionBroke, PeerReached, ReachAnswered, TimeHasPassed>;

  // --- actions ---
  struct Connect {};
  struct Disconnect {};
  struct Send {
    NativeRequest request;
  };
  struct HostStore {
    std::int64_t round = 0;
  };
  /// In a round with torchrun nodes: exchange roles, master address and ranks through the store.
  struct ExchangeThroughStore {
    RoundComplete round;
  };
  struct EnterExitBarrier {};
  /// The workers may start.
  struct BeginRound {
    RoundComplete round;
  };
  /// The agent must stop the workers. JoinAsked follows.
  struct RestartWorkers {
    std::string why;
    bool is_planned = false;  // No node has failed or is lost.
  };
  struct EndJob {
    bool succeeded = true;
    std::string who = {};
    std::string why = {};
  };
  struct FailRendezvous {
    std::string why;
  };
  /// Ask the workers' store of rank 0 whether the round is whole.
  struct AskReach {
    StoreAddress store;
    NativeReach question;
  };
  /// What this node's store answers from now on when another node asks whether the round is whole.
  struct SetReachAnswer {
    std::int64_t generation = 0;
    std::optional<Instant> whole_at;  // When the round was last known to be whole. Empty: unknown.
  };
  struct Print {
    bool warning = true;
    std::string text;
  };
  using Action = std::variant<Connect, Disconnect, Send, HostStore, ExchangeThroughStore,
                              EnterExitBarrier, BeginRound, RestartWorkers, EndJob, FailRendezvous,
                              AskReach, SetReachAnswer, Print>;
  using Actions = std::vector<Action>;

  struct Options {
    RendezvousSettings settings;
    NodeJoined node;        // This node's own data. The participant fills in the rest of each join.
    std::string host_text;  // "host:port", for people.
    std::string advice;     // What the nodes that are missing must run, for people.
    std::uint64_t random = 0;
  };
  explicit NativeParticipant(Options options);

  /// Handles one event and returns the actions. `now` never goes backwards between calls.
  Actions step(const Event& event, Instant now);
  /// When step(TimeHasPassed) must be called next.
  std::optional<Instant> next_deadline() const;

  enum class Phase {
    Outside,   // In no round: its workers are being stopped, or have not started.
    Joining,   // Has asked for a round.
    Running,   // In a round.
    Finished,  // Its workers have finished. It waits for the other nodes.
    Over,
  };
  Phase phase() const { return phase_; }
  /// Whether the exchange of this round has begun and its result is still expected.
  bool exchanging(std::int64_t round) const { return exchange_ && exchange_->round == round; }
  /// Whether this node is connected and the host knows it.
  bool attached() const { return up_ && !resuming_; }
  Duration lease() const { return lease_; }

 private:
  static constexpr Duration kPauseFirst = std::chrono::milliseconds(100);

  void on(const JoinAsked& event);
  void on(const WorkersHaveFailed& event);
  void on(const PartFinished& event);
  void on(const LeaveAsked& event);
  void on(const StoreHosted& event);
  void on(const StoreFailed& event);
  void on(const ExchangeDone& event);
  void on(const ExchangeFailed& event);
  void on(const ExitBarrierLeft& event);
  void on(const Connected& event);
  void on(const ConnectFailed& event);
  void on(const MessageReceived& event);
  void on(const ConnectionBroke& event);
  void on(const PeerReached& event);
  void on(const ReachAnswered& event);
  void on(const TimeHasPassed&) {}

  void handle(const NativeWelcome&) {}
  void handle(const NativeAlive&) {}
  void handle(const NativeReached&) {}
  void handle(const NativeChallenge&) {}
  void handle(const NodeAsked&) {}
  void handle(const Notice& message) { print(message.text); }
  void handle(const NativeRefused& message);
  void handle(const NativeWaiting& message);
  void handle(const PrepareStore& message);
  void handle(const RoundComplete& message);
  void handle(const RestartRound& message);
  void handle(const RunClosed& message);
  void handle(const RunEnded& message);
  void handle(const JoinRefused& message);
  void handle(const NotAMember& message);
  void handle(const Resumed& message);
  void handle(const Rejoin& message);

  void learn_lease();
  void ask_to_join();
  void resume();
  void record_round(std::int64_t round, std::int64_t life, int restart_count);
  void begin_round(const RoundComplete& round);
  bool say_finish();
  void end_round(const std::string& why, bool is_planned = false);
  void note_answer();
  void pause_before_next_try();
  void lose_connection(const std::string& why, Instant since);
  void forgive_pause(Duration length);
  void keep_link();
  void weigh_evidence();
  std::optional<Instant> whole_at() const;
  void fence();
  void keep_limits();
  void remind();
  struct GiveUp {
    Instant at{};
    NamedLimit limit;
  };
  std::optional<NamedLimit> absence_limit() const;
  std::optional<GiveUp> gives_up() const;
  std::string unreachable_text(const NamedLimit& limit) const;
  void end_without_host();
  Instant host_evidence() const;
  Duration probe_interval() const;
  Duration jittered(Duration most);
  void send(NativeRequest request) { actions_.push_back(Send{std::move(request)}); }
  void print(std::string text, bool warning = true) {
    actions_.push_back(Print{warning, std::move(text)});
  }
  void end(EndJob end);
  static std::string seconds_text_of(Duration time);
  std::string host_that(std::string_view nobody) const;
  std::string latest_attempt() const;
  void fail(std::string why);

  Options options_;
  Instant now_{};
  Actions actions_;
  Phase phase_ = Phase::Outside;

  // The connection.
  bool up_ = false;
  bool connecting_ = false;
  bool resuming_ = false;          // The host has not answered this node's resume yet.
  bool finish_is_unsaid_ = false;  // The workers have finished after that resume was sent.
  bool answered_ = false;          // The host has sent more than the welcome on this connection.
  NativeWelcome welcome_;          // The latest one.
  bool proxied_ = false;           // Of the latest connection: see Connected.
  Duration lease_;                 // The host's lease. Of an older host: this node's.
  Duration round_lease_{};         // The longest one since the round began.
  bool lease_logged_ = false;
  std::optional<Instant> next_try_;
  Duration pause_ = kPauseFirst;  // Before the next try, unless that one follows at once.
  Instant keep_alive_at_{};
  Instant heard_{};                    // When the host last sent something.
  std::optional<Instant> refused_;     // When the host's machine last refused a connection.
  std::optional<Instant> lost_since_;  // The host has been lost since then. Reset when it is back.
  std::string lost_why_, last_error_;
  ConnectFailed::Found found_ = ConnectFailed::Found::Nobody;  // As last_error_.
  static constexpr int kMaxToldErrors = 4;
  int told_errors_ = 0;  // The reasons that were printed since the connection was lost.

  // The round.
  RoundComplete round_;                    // The newest round that started workers on this node.
  bool has_round_ = false;                 // Whether there has been one.
  std::optional<RoundComplete> exchange_;  // A complete round whose exchange has not ended yet.
  bool through_store_ = false;             // round_ has torchrun nodes.
  int failed_exchanges_ = 0;               // Exchanges since the last round that started workers.
  std::int64_t last_round_ = -1;           // The newest round that the host has named.
  std::int64_t last_life_ = 0;             // The RoundComplete::life of that round.
  std::int64_t generation_ = 0;
  int restart_count_ = 0;  // The highest count that the host has sent.
  std::string failure_;    // The failure of round_, until the host is known to have it.

  // The other nodes of the round.
  std::map<int, Instant> peers_;    // At rank 0: when each node last asked this node's store.
  std::optional<Instant> reached_;  // At other nodes: when rank 0 last knew the round to be whole.
  Instant ask_at_{};
  std::optional<Instant> reach_answer_;  // The latest SetReachAnswer::whole_at.
  bool trains_alone_ = false;  // The user knows that the host is silent and training goes on.

  // Limits.
  Instant joined_at_{};
  WaitReminder reminder_;
  std::string waiting_for_;  // The host's latest sentence about the wait.
  std::optional<Instant> finish_until_;
  std::optional<Instant> farewell_until_;
};

}  // namespace muster
