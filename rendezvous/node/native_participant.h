// The state machine of one muster node whose rendezvous host is a muster.
//
// Pure: events go in, actions come out, time and chance are arguments. It decides when to connect
// again, what a silent host means for the workers, and when this node must assume that it is cut
// off. The table is in docs/rendezvous_rules.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/time.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/node/host_link.h"
#include "rendezvous/node/latest_round.h"
#include "rendezvous/node/node_notices.h"
#include "rendezvous/node/round_peers.h"
#include "rendezvous/node/round_progress.h"
#include "rendezvous/node/wait_reminder.h"
#include "rendezvous/rounds/settings.h"

namespace muster {

class NativeParticipant {
 public:
  // --- events: from the agent ---
  struct JoinAsked {};
  struct WorkersHaveFailed {
    std::string what;
    bool hung = false;  // WorkersFailed::hung
  };
  /// A worker has told a step. Empty: the workers have made progress that has no number.
  struct ProgressMade {
    std::optional<std::int64_t> step = {};
  };
  struct PartFinished {
    bool succeeded = true;
    std::string what;
  };
  struct LeaveAsked {};
  /// This node will go after `left`. The earliest deadline holds.
  struct NoticeGiven {
    Duration left{};
    std::string reason;
  };
  /// All workers of this node have answered the notice of the round.
  struct WorkersHaveSaved {};
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
    using Found = HostFound;
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
      std::variant<JoinAsked, WorkersHaveFailed, PartFinished, LeaveAsked, NoticeGiven,
                   WorkersHaveSaved, ProgressMade, StoreHosted, StoreFailed, ExchangeDone,
                   ExchangeFailed, ExitBarrierLeft, Connected, ConnectFailed, MessageReceived,
                   ConnectionBroke, PeerReached, ReachAnswered, TimeHasPassed>;

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
    bool for_notice = false;  // All nodes have answered the notice, or its deadline is here.
  };
  struct EndJob {
    bool succeeded = true;
    std::string who = {};
    std::string why = {};
    bool preempted = false;    // Because nodes of the job will go. No node has failed.
    int without_progress = 0;  // RunEnded::without_progress
    bool hopeless = false;     // RunEnded::hopeless
  };
  /// Comes again when something has changed.
  using TellWorkers = WorkersNotice;
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
                              AskReach, SetReachAnswer, TellWorkers, Print>;
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
  bool attached() const { return link_.is_up() && !resuming_; }
  Duration lease() const { return link_.lease(); }

 private:
  void on(const JoinAsked& event);
  void on(const WorkersHaveFailed& event);
  void on(const PartFinished& event);
  void on(const LeaveAsked& event);
  void on(const NoticeGiven& event);
  void on(const WorkersHaveSaved& event);
  void on(const ProgressMade& event);
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
  void handle(const PreemptionNotice& message);

  // This node will go, and the notices of the round.
  void send_own_notice();
  void tell_own_workers();
  void tell_workers(TellWorkers told);
  std::optional<std::pair<int, int>> own_ranks() const;
  bool goes_alone() const;

  void learn_lease();
  void tell_progress();
  void tell_last_step();
  void ask_to_join();
  void resume();
  void begin_round(const RoundComplete& round);
  bool send_finish();
  void end_round(RestartWorkers restart);
  void note_answer();
  void lose_connection(const std::string& why, Instant since);
  void extend_after_pause(Duration length);
  void keep_link();
  void check_evidence();
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
  void send(NativeRequest request) { actions_.push_back(Send{std::move(request)}); }
  void print(std::string text, bool warning = true) {
    actions_.push_back(Print{warning, std::move(text)});
  }
  void end(EndJob end);
  static std::string seconds_text_of(Duration time);
  void fail(std::string why);

  Options options_;
  Instant now_{};
  Actions actions_;
  Phase phase_ = Phase::Outside;

  // The host.
  HostLink link_;
  bool resuming_ = false;       // The host has not answered this node's resume yet.
  bool finish_unsent_ = false;  // The workers have finished after that resume was sent.
  bool lease_logged_ = false;

  // The round.
  RoundComplete round_;                    // The newest round that started workers on this node.
  bool has_round_ = false;                 // Whether there has been one.
  Duration round_lease_{};                 // The longest lease of the host since the round began.
  std::optional<RoundComplete> exchange_;  // A complete round whose exchange has not ended yet.
  bool through_store_ = false;             // round_ has torchrun nodes.
  int failed_exchanges_ = 0;               // Exchanges since the last round that started workers.
  LatestRound latest_;
  std::string failure_;  // The failure of round_, until the host is known to have it.
  bool failure_hung_ = false;
  RoundProgress progress_;
  NodeNotices notices_;
  RoundPeers peers_;

  // Limits.
  Instant joined_at_{};
  WaitReminder reminder_;
  std::string waiting_for_;  // The host's latest sentence about the wait.
  std::optional<Instant> finish_until_;
  std::optional<Instant> farewell_until_;
};

}  // namespace muster
