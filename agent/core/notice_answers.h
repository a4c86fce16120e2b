// Who of this node's workers has answered a notice for the whole job, and whether all have.
//
// Pure. docs/worker_channel.md describes notice and answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace muster {

class NoticeAnswers {
 public:
  explicit NoticeAnswers(int local_world_size);

  /// New workers: nobody has answered, and there is no notice.
  void attempt_begins();
  /// The workers have got a notice with this number, or a new one in its place. An answer to an
  /// earlier notice stays valid: the worker has saved, whatever the notice says now.
  void notified(std::int64_t id);
  /// A worker says that it has saved. `id`: see WorkerSaved. An answer without a number may come
  /// before the notice: another rank has got one, and all ranks save together. It counts if the
  /// worker then ends with 0. A worker that goes on may save at any time, and must answer again.
  void answered(LocalRank rank, std::optional<std::int64_t> id);
  /// A worker has ended.
  void ended(LocalRank rank, bool succeeded);

  bool holds() const { return first_id_.has_value(); }
  /// Whether this worker has answered the notice. If it then ends with 0, it has stopped for the
  /// notice, and its work is not done.
  bool has_answered(LocalRank rank) const { return worker(rank).answered; }
  /// Whether this worker has answered a notice that this node has not got yet.
  bool has_answered_ahead(LocalRank rank) const { return worker(rank).ahead && !holds(); }
  /// True once: at least one worker has answered, and each of the others has, too, or has ended
  /// with 0. The host can then be told that this node is ready.
  bool take_complete();

 private:
  struct Worker {
    bool answered = false;
    bool ahead = false;  // It has answered before the notice came.
    bool ended = false;
    bool failed = false;
  };
  Worker& worker(LocalRank rank);
  const Worker& worker(LocalRank rank) const;

  std::vector<Worker> workers_;
  std::optional<std::int64_t> first_id_;  // The first notice of this attempt.
  bool taken_ = false;
};

}  // namespace muster
