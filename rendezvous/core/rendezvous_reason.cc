// Why it is waiting, for people.

#include "rendezvous/core/rendezvous.h"

namespace muster {
namespace {

constexpr std::size_t kNamesShown = 8;

// "a_1_0, b_2_0 and 3 more"
class NameList {
 public:
  void add(const std::string& name) {
    if (count_++ < kNamesShown) text_ += (text_.empty() ? "" : ", ") + name;
  }
  bool empty() const { return count_ == 0; }
  std::string text() const {
    if (count_ <= kNamesShown) return text_;
    return text_ + " and " + std::to_string(count_ - kNamesShown) + " more";
  }

 private:
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace

std::string_view Rendezvous::reason() const {
  if (reason_dirty_) {
    reason_ = make_reason();
    reason_dirty_ = false;
  }
  return reason_;
}

std::string Rendezvous::make_reason() const {
  if (outcome_) return "ended: " + outcome_->why;
  if (closed_) return "closed: nobody may join any more";
  const auto names = [&](std::initializer_list<Place> places) {
    NameList list;
    for (const Place where : places)
      for (const auto& [order, id] : at(where)) {
        const Member& member = members_.at(id);
        const bool known_rank = member.last_rank && where != Place::Participant;
        list.add(to_string(member.name) +
                 (known_rank ? " (was rank " + std::to_string(*member.last_rank) + ")" : ""));
      }
    return list;
  };
  const std::string round = "round " + std::to_string(round_);
  const auto taken = std::to_string(count(Place::Participant));
  const std::string nodes = taken + (count(Place::Participant) == 1 ? " node" : " nodes");
  if (complete_ && draining_)
    return round + " ends: waiting for " + names({Place::Participant}).text() +
           " to leave it (torchrun looks once a second)";
  if (complete_ && preparing_)
    return round + " has its " + nodes + ": rank 0 empties the workers' store";
  if (complete_) return round + " runs with " + nodes;
  std::string text = round + ": " + taken;
  if (run_)
    text += " of " + std::to_string(run_->min_nodes) +
            (run_->max_nodes > run_->min_nodes ? " to " + std::to_string(run_->max_nodes) : "");
  text += " nodes have joined";
  if (count(Place::Participant) > 0) text += " (" + names({Place::Participant}).text() + ")";
  const NameList missing = names({Place::Restarting, Place::Away, Place::Waiting});
  if (!missing.empty()) text += "; to come back: " + missing.text();
  if (run_ && static_cast<int>(count(Place::Participant) + expected()) < run_->min_nodes)
    text += "; " +
            std::to_string(static_cast<std::size_t>(run_->min_nodes) - count(Place::Participant) -
                           expected()) +
            " more must come";
  if (deadline_) text += "; the last call is running";
  const auto spares = count(Place::Standby) + count(Place::Redundant);
  if (spares > 0) text += "; " + std::to_string(spares) + " spare";
  return text;
}

}  // namespace muster
