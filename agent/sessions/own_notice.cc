#include "agent/sessions/own_notice.h"

#include <utility>

#include "base/system/clock.h"

namespace muster {

OwnNotice::OwnNotice(const boost::asio::any_io_executor& executor, Handlers handlers)
    : handlers_(std::move(handlers)), timer_(executor) {}

void OwnNotice::give(const NodeNotice& notice) {
  const Instant deadline = later(now(), notice.left);
  if (!handlers_.end || (deadline_ && *deadline_ <= deadline)) return;
  deadline_ = deadline;
  reason_ = notice.reason;
  timer_.expires_at(to_steady(deadline));
  timer_.async_wait([this, alive = alive_](boost::system::error_code ec) {
    if (!ec && *alive) finish();
  });
  tell();
}

void OwnNotice::round_begins(const AssignedRanks& ranks, int local_world_size) {
  const int first = ranks.base_global_rank.value;
  ranks_ = {first, first + local_world_size - 1};
  tell();
}

void OwnNotice::tell() const {
  if (!deadline_ || !ranks_ || !handlers_.tell) return;
  const auto tell = handlers_.tell;  // The handler may close the session.
  tell({.deadline = *deadline_,
        .reason = reason_,
        .doomed_ranks = {*ranks_},
        .this_node = true,
        .stops = true});
}

void OwnNotice::finish() {
  if (!deadline_ || !handlers_.end) return;
  const auto end = std::exchange(handlers_, {}).end;
  timer_.cancel();
  end({.succeeded = false,
       .failed_node = "",
       .why = "this node will go (" + reason_ + ")",
       .preempted = true});
}

void OwnNotice::cancel() {
  handlers_ = {};
  *alive_ = false;
  timer_.cancel();
}

}  // namespace muster
