// What one muster node does while the host of its rendezvous is muster.
//
// Pure: what happens goes in as events, what is to be done comes out as actions; time and chance
// are arguments. It decides when to connect again, what a silent host means for the workers, and
// when this node must take itself for cut off. The table is in docs/rendezvous.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/settings.h"
#include "rendezvous/core/time.h"
#include "rendezvous/wire/native_codec.h"

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
  };
  struct ConnectFailed {
    enum class Why {
      NobodyListens,  // The host's machine refuses the connection: no process is there.
      NoAnswer,
      NotWanted,  // A muster is there, and refuses this node.
    };
    Why why = Why::NoAnswer;
    std::string text;
  };
  struct Heard {
    NativeMessage message;
  };
  struct ConnectionBroke {
    std::string why;
  };
  /// At rank 0: another node has reached this node's store while the host is silent to it.
  struct PeerReached {
    std::int64_t generation = 0;
    int group_rank = 0;
  };
  /// Answers AskReach; not whole if nobody answered, too.
  struct ReachAnswered {
    std::int64_t generation = 0;
    bool whole = false;
    Duration age{};  // Of what rank 0 knows.
  };
  struct TimeHasPassed {};
  using Event =
      std::variant<JoinAsked, WorkersHaveFailed, PartFinished, LeaveAsked, StoreHosted, StoreFailed,
                   ExchangeDone, ExchangeFailed, ExitBarrierLeft, Connected, ConnectFailed, Heard,
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
  /// A round with torchrun nodes: what its nodes tell each other goes through the store.
  struct ExchangeThroughStore {
    RoundComplete round;
  };
  struct EnterExitBarrier {};
  /// The workers may start.
  struct BeginRound {
    RoundComplete round;
  };
  /// The workers are to be stopped, then JoinAsked.
  struct RestartWorkers {
    std::string why;
  };
  struct EndJob {
    bool succeeded = true;
    std::string who = {};
    std::string why = {};
  };
  struct GiveUp {
    std::string why;
  };
  /// Of rank 0, at the workers' store.
  struct AskReach {
    StoreAddress store;
    NativeReach question;
  };
  /// What this node's store answers to AskReach of the others from now on.
  struct Vouch {
    std::int64_t generation = 0;
    std::optional<Instant> whole_at;  // When it was, as far as is known; nothing: it is not.
  };
  struct Say {
    bool warning = true;
    std::string text;
  };
  using Action =
      std::variant<Connect, Disconnect, Send, HostStore, ExchangeThroughStore, EnterExitBarrier,
                   BeginRound, RestartWorkers, EndJob, GiveUp, AskReach, Vouch, Say>;
  using Actions = std::vector<Action>;

  struct Options {
    RendezvousSettings settings;
    NodeJoined node;        // What it says of itself; the rest is filled in.
    std::string host_text;  // "host:port", for people.
    std::uint64_t random = 0;
  };
  explicit NativeParticipant(Options options);

  /// Takes one event. `now` never goes backwards between calls.
  Actions step(const Event& event, Instant now);
  /// When step(TimeHasPassed) is next needed.
  std::optional<Instant> next_deadline() const;

  enum class Phase {
    Outside,   // Its workers are being stopped, or have not begun.
    Joining,   // Has asked for a round.
    Running,   // In a round.
    Finished,  // Waits for the others.
    Over,
  };
  Phase phase() const { return phase_; }
  /// The exchange of this round is still waited for.
  bool exchanging(std::int64_t round) const { return exchange_ && exchange_->round == round; }
  /// The host is there, and knows this node.
  bool attached() const { return up_ && !resuming_; }
  Duration lease() const { return lease_; }

 private:
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
  void on(const Heard& event);
  void on(const ConnectionBroke& event);
  void on(const PeerReached& event);
  void on(const ReachAnswered& event);
  void on(const TimeHasPassed&) {}

  void hear(const NativeWelcome&) {}
  void hear(const NativeAlive&) {}
  void hear(const NativeReached&) {}
  void hear(const NativeChallenge&) {}
  void hear(const NodeAsked&) {}
  void hear(const NativeRefused& message);
  void hear(const NativeWaiting& message);
  void hear(const PrepareStore& message);
  void hear(const RoundComplete& message);
  void hear(const RestartRound& message);
  void hear(const RunClosed& message);
  void hear(const RunEnded& message);
  void hear(const JoinRefused& message);
  void hear(const NotAMember& message);
  void hear(const Resumed& message);
  void hear(const Rejoin& message);

  void learn_lease();
  void ask_to_join();
  void resume();
  void note_told(std::int64_t round, std::int64_t life, int restart_count);
  void begin_round(const RoundComplete& round);
  void meet_again(const std::string& why);
  void lose_connection(const std::string& why, Instant since);
  void forgive_pause(Duration length);
  void keep_link();
  void weigh_evidence();
  std::optional<Instant> whole_at() const;
  void fence();
  void keep_limits();
  std::optional<Duration> absence_limit() const;
  std::string unreachable_text(Duration limit, std::string_view option) const;
  void end_without_host();
  Instant host_evidence() const;
  Duration probe_interval() const;
  Duration jittered(Duration most);
  void send(NativeRequest request) { actions_.push_back(Send{std::move(request)}); }
  void say(std::string text, bool warning = true) {
    actions_.push_back(Say{warning, std::move(text)});
  }
  void end(EndJob end);
  static std::string seconds_text_of(Duration time);
  void give_up(std::string why);

  Options options_;
  Instant now_{};
  Actions actions_;
  Phase phase_ = Phase::Outside;

  // The connection.
  bool up_ = false;
  bool connecting_ = false;
  bool resuming_ = false;  // Has asked to resume; not answered yet.
  NativeWelcome welcome_;  // The latest.
  Duration lease_;         // Of the host, or ours if that is shorter.
  bool lease_told_ = false;
  std::optional<Instant> next_try_;
  Duration pause_{};
  Instant keep_alive_at_{};
  Instant heard_{};                    // The host's last sign of life.
  std::optional<Instant> refused_;     // When nobody listened there last.
  std::optional<Instant> lost_since_;  // Until the host knows this node again.
  std::string lost_why_, last_error_;

  // The round.
  std::optional<RoundComplete> round_;     // The newest one that had workers here.
  std::optional<RoundComplete> exchange_;  // Complete, but not known in full yet.
  bool through_store_ = false;             // round_ has torchrun nodes.
  int fruitless_ = 0;                      // Exchanges since one led to a round with workers.
  std::int64_t told_ = -1;                 // The newest round that it heard of.
  std::int64_t told_by_ = 0;               // RoundComplete::life.
  std::int64_t generation_ = 0;
  int restart_count_ = 0;  // The highest that it was told.
  std::string failure_;    // Of round_, as long as it is not known to be heard.

  // The other nodes of the round.
  std::map<int, Instant> peers_;    // At rank 0: when each was here last.
  std::optional<Instant> reached_;  // Elsewhere: when rank 0 last said that the round is whole.
  Instant ask_at_{};
  std::optional<Instant> vouched_;  // Vouch::whole_at.
  bool trains_alone_ = false;       // It was told that the host is silent and training goes on.

  // Limits.
  Instant joined_at_{};
  std::optional<Instant> finish_until_;
  std::optional<Instant> farewell_until_;
};

}  // namespace muster
