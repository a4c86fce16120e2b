// A list of deadlines that all have the same time limit, so that they are in order and the first
// one is the next.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "base/time.h"
#include "rendezvous/store/store_request.h"

namespace muster {

class DeadlineList {
 public:
  struct Deadline {
    Instant at;
    ConnectionId who;
  };
  using Place = std::list<Deadline>::iterator;

  explicit DeadlineList(Duration after) : after_(after) {}

  Place add(ConnectionId who, Instant now) {
    return deadlines_.insert(deadlines_.end(), Deadline{now + after_, who});
  }
  void renew(Place place, Instant now) {
    place->at = now + after_;
    deadlines_.splice(deadlines_.end(), deadlines_, place);
  }
  void remove(Place place) { deadlines_.erase(place); }
  /// Changes the time limit. Existing deadlines are moved by the difference, so their order stays.
  void set_after(Duration after) {
    for (Deadline& deadline : deadlines_)
      deadline.at += after - after_;
    after_ = after;
  }
  const Deadline* first() const { return deadlines_.empty() ? nullptr : &deadlines_.front(); }

 private:
  Duration after_;
  std::list<Deadline> deadlines_;
};

}  // namespace muster
