#include "agent/core/notice_answers.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace muster {

NoticeAnswers::NoticeAnswers(int local_world_size)
    : workers_(static_cast<std::size_t>(local_world_size)) {}

void NoticeAnswers::attempt_begins() {
  workers_.assign(workers_.size(), Worker{});
  first_id_.reset();
  taken_ = false;
}

void NoticeAnswers::notified(std::int64_t id) {
  if (!first_id_) first_id_ = id;
}

void NoticeAnswers::answered(LocalRank rank, std::optional<std::int64_t> id) {
  // A process that a worker has started may hold the connection longer than the worker lives.
  if (worker(rank).ended) return;
  if (!first_id_ && !id) worker(rank).ahead = true;
  // An answer to a notice of an earlier attempt comes from a process that has outlived it.
  if (!first_id_ || (id && *id < *first_id_)) return;
  worker(rank).answered = true;
}

void NoticeAnswers::ended(LocalRank rank, bool succeeded) {
  worker(rank).ended = true;
  worker(rank).failed = !succeeded;
  if (succeeded && worker(rank).ahead) worker(rank).answered = true;
}

bool NoticeAnswers::take_complete() {
  if (taken_ || !first_id_) return false;
  const auto is_ready = [](const Worker& worker) {
    return worker.ended ? !worker.failed : worker.answered;
  };
  const auto has_answered = [](const Worker& worker) { return worker.answered; };
  if (!std::all_of(workers_.begin(), workers_.end(), is_ready)) return false;
  if (std::none_of(workers_.begin(), workers_.end(), has_answered)) return false;
  taken_ = true;
  return true;
}

NoticeAnswers::Worker& NoticeAnswers::worker(LocalRank rank) {
  MUSTER_CHECK(rank.value >= 0 && static_cast<std::size_t>(rank.value) < workers_.size());
  return workers_[static_cast<std::size_t>(rank.value)];
}

const NoticeAnswers::Worker& NoticeAnswers::worker(LocalRank rank) const {
  MUSTER_CHECK(rank.value >= 0 && static_cast<std::size_t>(rank.value) < workers_.size());
  return workers_[static_cast<std::size_t>(rank.value)];
}

}  // namespace muster
