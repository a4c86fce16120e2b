#include "agent/core/zygote_life.h"

#include <utility>

#include "base/size_text.h"

namespace muster {

ZygoteActions ZygoteLife::step(const ZygoteEvent& event, Instant now) {
  return std::visit([&](const auto& e) { return on(e, now); }, event);
}

ZygoteActions ZygoteLife::on(const WarmStartAsked& event, Instant now) {
  ZygoteActions actions;
  switch (state_) {
    case State::Absent:
      launch(actions, now);
      waiting_.insert(event.worker);
      return actions;
    case State::Importing:
      // Only a job that has no worker yet waits: a later one would lose time that a cold start does
      // not need.
      if (is_first_) {
        waiting_.insert(event.worker);
        return {};
      }
      return {StartCold{event.worker, "the new zygote has not done its imports yet"}};
    case State::Ready:
      waiting_.insert(event.worker);
      if (!deadline_) deadline_ = now + kForkLimit;
      return {ForkWorker{event.worker}};
    case State::Refused:
      return {StartCold{event.worker, refusal_}};
  }
  return {};
}

ZygoteActions ZygoteLife::on(const ImportsDone&, Instant now) {
  if (state_ != State::Importing) return {};
  state_ = State::Ready;
  is_first_ = false;
  deadline_.reset();
  bytes_after_imports_.reset();
  ZygoteActions actions;
  for (const int worker : waiting_)
    actions.emplace_back(ForkWorker{worker});
  if (!waiting_.empty()) deadline_ = now + kForkLimit;
  return actions;
}

ZygoteActions ZygoteLife::on(const ZygoteRefused& event, Instant now) {
  if (state_ != State::Importing && state_ != State::Ready) return {};
  return give_up(event.reason, event.is_stale ? Next::NewZygote : Next::None, now);
}

ZygoteActions ZygoteLife::on(const ZygoteEnded& event, Instant now) {
  // The same imports would end a new zygote in the same way.
  if (state_ == State::Importing)
    return give_up("the zygote " + event.how + " while it imported", Next::None, now);
  if (state_ == State::Ready) return give_up("the zygote " + event.how, Next::NewZygote, now);
  return {};
}

ZygoteActions ZygoteLife::on(const ForkDone& event, Instant now) {
  waiting_.erase(event.worker);
  without_worker_ = 0;
  deadline_.reset();
  if (!waiting_.empty()) deadline_ = now + kForkLimit;  // The forks come one after the other.
  return {};
}

ZygoteActions ZygoteLife::on(const ForkFailed& event, Instant now) {
  if (state_ != State::Ready || !waiting_.contains(event.worker)) return {};
  return give_up("a fork of the zygote has ended too early", Next::NewZygote, now);
}

ZygoteActions ZygoteLife::on(const ZygoteMeasured& event, Instant now) {
  if (state_ != State::Ready) return {};
  if (!bytes_after_imports_) bytes_after_imports_ = event.bytes;
  // A start that waits is not given up for it: the next measurement follows its fork.
  if (has_waiting() || event.bytes <= max_bytes(*bytes_after_imports_)) return {};
  return give_up("the memory of the zygote has grown from " + size_text(*bytes_after_imports_) +
                     " to " + size_text(event.bytes),
                 Next::NewZygote, now);
}

ZygoteActions ZygoteLife::on(const WarmStartsAborted&, Instant /*now*/) {
  ZygoteActions actions;
  start_waiting_cold({}, actions);
  if (state_ == State::Ready) deadline_.reset();
  return actions;
}

ZygoteActions ZygoteLife::on(const ZygoteTimePassed&, Instant now) {
  if (!deadline_ || now < *deadline_) return {};
  if (state_ == State::Ready)
    return give_up("the zygote has not answered within 5 seconds", Next::NewZygote, now);
  return give_up("the imports have taken more than 300 seconds", Next::None, now);
}

/// Starts all that wait cold, and makes a new zygote beside them or none.
ZygoteActions ZygoteLife::give_up(const ColdReason& reason, Next next, Instant now) {
  const bool is_replaced = next == Next::NewZygote && ++without_worker_ < kZygotesWithoutWorker;
  ZygoteActions actions;
  if (!has_waiting()) actions.emplace_back(ReportLostZygote{reason, is_replaced});
  start_waiting_cold(reason, actions);
  actions.emplace_back(KillZygote{});
  deadline_.reset();
  is_first_ = false;
  if (is_replaced) {
    launch(actions, now);
  } else {
    state_ = State::Refused;
    refusal_ = reason;
  }
  return actions;
}

void ZygoteLife::start_waiting_cold(const ColdReason& reason, ZygoteActions& actions) {
  for (const int worker : std::exchange(waiting_, {}))
    actions.emplace_back(StartCold{worker, reason});
}

void ZygoteLife::launch(ZygoteActions& actions, Instant now) {
  state_ = State::Importing;
  deadline_ = now + kImportLimit;
  actions.emplace_back(LaunchZygote{});
}

}  // namespace muster
