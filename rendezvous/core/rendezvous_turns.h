// Turns at compare-and-set: who may try now, who is held back, and until when.
//
// A client that lost a compare-and-set tries again at once with what the reply told it; N of them
// waste a number of tries that grows with N². So the reply to a loser is held back until it is that
// client's turn: it carries the newest value, and as nobody else may write meanwhile, its next try
// wins. A turn that is not used passes on. Pure; one object for each key.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "rendezvous/core/store_request.h"
#include "rendezvous/core/time.h"

namespace muster {

struct TurnLimits {
  Duration turn = std::chrono::milliseconds(50);  // To try, once the reply is out.
  /// Nobody is held back longer: torchrun gives a keep-alive 5 s, a connection 60 s.
  Duration hold = std::chrono::seconds(4);
  std::size_t held = 65'536;  // Clients; beyond, the oldest is answered without a turn.
};

class CompareSetTurns {
 public:
  explicit CompareSetTurns(TurnLimits limits = {}) : limits_(limits) {}

  /// Whether a compare-and-set of `client` may be tried now. If so, tried() must follow; if not,
  /// hold() must.
  bool may_try(ConnectionId client) const;
  /// It was tried. If it lost, the reply is held back as by hold().
  void tried(ConnectionId client, bool won, Instant now);
  void hold(ConnectionId client, Instant now);
  /// It was answered for another reason (merged, refused): its turn, if it had one, is over.
  void answered(ConnectionId client, Instant now);
  /// The client is gone, or asks for something else: nothing is owed to it.
  void gone(ConnectionId client, Instant now);

  /// When time_passed() is next needed.
  std::optional<Instant> next_deadline() const;
  void time_passed(Instant now);
  /// Who is to be answered now, with the newest value, in this order.
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
  std::set<std::uint32_t> queued_;  // Who is in it: most who ask for a state are not.
  std::optional<ConnectionId> holder_;
  Instant turn_ends_{};
  std::vector<ConnectionId> released_;
};

}  // namespace muster
