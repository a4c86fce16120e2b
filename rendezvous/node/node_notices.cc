#include "rendezvous/node/node_notices.h"

#include <algorithm>
#include <chrono>

#include "base/cut_text.h"
#include "rendezvous/rounds/notice.h"

namespace muster {
namespace {

/// Two deadlines that are so close are one that was measured twice.
constexpr Duration kSameDeadline = std::chrono::milliseconds(500);

}  // namespace

bool NodeNotices::give(Instant deadline, std::string reason) {
  if (own_ && !own_->of_host && own_->deadline <= deadline) return false;
  own_ = Own{deadline, std::move(reason), false};
  cut_text(own_->reason, kMaxNoticeReasonBytes);
  return true;
}

void NodeNotices::learn(WorkersNotice& notice) {
  if (!notice.this_node) return;
  if (own_ && !own_->of_host)
    notice.deadline = std::min(notice.deadline, own_->deadline);
  else
    own_ = Own{notice.deadline, notice.reason, true};
}

std::optional<Instant> NodeNotices::next_deadline(Instant now) const {
  return own_ && own_->deadline > now ? std::optional(own_->deadline) : std::nullopt;
}

void NodeNotices::begin_round() {
  latest_.reset();
  saved_ = false;
  if (own_ && own_->of_host) own_.reset();
}

bool NodeNotices::tell(const WorkersNotice& notice) {
  const bool is_known = latest_ && latest_->reason == notice.reason &&
                        latest_->ranks == notice.ranks && latest_->this_node == notice.this_node &&
                        latest_->stops == notice.stops &&
                        notice.deadline - latest_->deadline < kSameDeadline &&
                        latest_->deadline - notice.deadline < kSameDeadline;
  if (is_known) return false;
  latest_ = notice;
  return true;
}

std::optional<WorkersNotice> NodeNotices::take_kept(std::int64_t round) {
  auto kept = std::exchange(kept_, std::nullopt);
  if (!kept || kept->first != round) return std::nullopt;
  return std::move(kept->second);
}

}  // namespace muster
