// Turns at compare-and-set: which client may try now, and how long the replies to others wait.
//
// A client that lost a compare-and-set tries again at once with the value of the reply. N such
// clients waste a number of tries that grows with N². So the reply to a loser waits until it is
// that client's turn. The reply has the newest value, and no other client may write meanwhile, so
// the client's next try wins. A turn that is not used passes on. Pure; one object for each key.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace muster {

struct TurnLimits {
  Duration turn = std::chrono::milliseconds(50);  // For the next try, from the reply on.
  /// No reply waits longer: torchrun gives a keep-alive 5 s, a connection 60 s.
  Duration hold = std::chrono::seconds(4);
  std::size_t held = 65'536;  // Clients; beyond that, the oldest gets its reply without a turn.
};

class CompareSetTurns {
 public:
  explicit CompareSetTurns(TurnLimits limits = {}) : limits_(limits) {}

  /// Whether a compare-and-set of `client` may be tried now. If so, tried() must follow; if not,
  /// hold() must.
  bool may_try(ConnectionId client) const;
  /// The client's compare-and-set was tried. If it lost, the reply waits as with hold().
  void tried(ConnectionId client, bool won, Instant now);
  /// Queues the client: its reply waits for its turn.
  void hold(ConnectionId client, Instant now);
  /// The client got a reply for another reason (merged, refused): its turn, if any, is over.
  void answered(ConnectionId client, Instant now);
  /// The client is gone, or asks for something else: it waits for no reply any more.
  void give_up(ConnectionId client, Instant now);

  /// When time_passed() is next needed.
  std::optional<Instant> next_deadline() const;
  void time_passed(Instant now);
  /// The clients that must get the newest value as their reply now, in this order.
  std::vector<ConnectionId> take_released();

  std::size_t held() const { return queue_.size(); }

 private:
  struct Held {
    ConnectionId client;
    Instant since;
  };
  void next_turn(Instant now);
  void pop_front();

  TurnLimits limits_;
  std::deque<Held> queue_;
  std::set<std::uint32_t> queued_;  // The clients in queue_: most lookups do not find one.
  std::optional<ConnectionId> holder_;
  Instant turn_ends_{};
  std::vector<ConnectionId> released_;
};

}  // namespace muster
