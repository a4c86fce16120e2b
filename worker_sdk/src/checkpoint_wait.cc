#include "checkpoint_wait.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "group_state.h"
#include "muster/collectives.h"
#include "muster/error.h"
#include "named_errors.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kProgressInterval = std::chrono::seconds(30);
constexpr char kSucceeded = '1';
constexpr char kFailed = '0';

// Returns a different name for each task, because a process may have several Checkpoints of a
// group.
std::string random_name() {
  std::random_device random;
  return std::to_string(random()) + "-" + std::to_string(random());
}

long long seconds(std::chrono::milliseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

// The store may be gone with the process that hosts it.
template <class Call>
auto use_store(const ProcessGroup& group, Call call) {
  const auto describe = [&group] {
    return operation_text("Checkpoints::save", group.torch_group()->getGroupName(), group.rank(),
                          group.size());
  };
  return with_named_errors(describe, call);
}

}  // namespace

RankZeroTask::RankZeroTask(ProcessGroup group, std::chrono::milliseconds timeout)
    : group_(std::move(group)), timeout_(timeout), store_(store_of(group_)) {
  key_ = "muster/rank_zero_task/" +
         broadcast_bytes(group_.rank() == 0 ? random_name() : "", group_.global_rank(0), group_);
}

void RankZeroTask::done(const std::string& failure) {
  if (group_.size() == 1) return;
  const std::string text = (failure.empty() ? kSucceeded : kFailed) + failure;
  use_store(group_,
            [&] { store_->set(key_, std::vector<std::uint8_t>(text.begin(), text.end())); });
}

void RankZeroTask::wait(const std::string& what) {
  const std::vector<std::uint8_t> text = use_store(group_, [&] { return wait_for_result(what); });
  if (text.empty() || text[0] != kSucceeded)
    throw Error(text.empty() ? "rank 0 has failed." : std::string(text.begin() + 1, text.end()));
}

std::vector<std::uint8_t> RankZeroTask::wait_for_result(const std::string& what) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    if (waited >= timeout_)
      throw Error("rank 0 has not finished " + what + " within " +
                  std::to_string(seconds(timeout_)) + " s (CheckpointOptions::save_timeout).");
    try {
      store_->wait({key_}, std::min(kProgressInterval, timeout_ - waited));
      break;
    } catch (const c10::DistStoreError&) {
      // Either the slice of time is over, or the store is gone. In the second case, check() throws.
      if (!store_->check({key_}))
        std::fprintf(stderr, "rank %d waits for rank 0 to finish %s, for %lld s so far\n",
                     group_.rank(), what.c_str(),
                     seconds(std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::steady_clock::now() - begin)));
    }
  }
  std::vector<std::uint8_t> text = store_->get(key_);
  // The last rank that has read the result removes it.
  if (store_->add(key_ + "/read", 1) == group_.size() - 1) {
    store_->deleteKey(key_);
    store_->deleteKey(key_ + "/read");
  }
  return text;
}

}  // namespace muster
