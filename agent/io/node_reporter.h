// Reports the state of this node's workers to the host, for people: at most once a second, progress
// alone about every ten seconds, and a failure at once. Nothing waits for a report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/exit_report.h"
#include "agent/core/supervisor.h"
#include "agent/core/worker_env.h"
#include "agent/core/worker_table.h"
#include "rendezvous/rounds/node_report.h"

namespace muster {

class NodeReporter : public WorkerObserver {
 public:
  using Send = std::function<void(const NodeReport&)>;
  NodeReporter(boost::asio::io_context& io, int workers, Send send);
  ~NodeReporter() override { *alive_ = false; }
  NodeReporter(const NodeReporter&) = delete;
  NodeReporter& operator=(const NodeReporter&) = delete;

  /// The workers of the next attempt belong to this round.
  void round_begins(std::int64_t round) { round_ = round; }
  /// The ranks of the attempt that begins.
  void ranks_assigned(const AssignedRanks& ranks) { ranks_ = ranks; }
  void attempt_begins() override;
  void worker_started(const RunningWorker& started) override;
  void worker_ended(const RunningWorker& ended, const WorkerExit& exit) override;
  void progressed(LocalRank rank, std::int64_t step);
  /// --warm: the own memory of the zygote; no value: there is none.
  void zygote_measured(std::optional<std::uint64_t> bytes);
  /// The first failure of the attempt. `because`: why muster ended the worker; empty if it did not.
  void failed(LocalRank rank, const WorkerExit& exit, const std::string& because);
  /// The attempt's workers have ended. Adds the failed worker's last lines and error file.
  void ended(const std::vector<ExplainedEnd>& ends);

  /// How often the workers were started.
  int starts() const { return starts_; }

 private:
  struct Worker {
    WorkerReport report;
    std::optional<Instant> progress;
  };
  Worker& at(LocalRank rank) { return workers_[static_cast<std::size_t>(rank.value)]; }
  void schedule_report();
  void send_within(Duration delay);
  void send_now();
  std::vector<WorkerReport> listed(Instant at) const;

  boost::asio::steady_timer timer_;
  Send send_;
  std::vector<Worker> workers_;
  AssignedRanks ranks_;
  std::int64_t round_ = 0;
  std::int64_t attempt_round_ = 0;  // The round of the workers that were started last.
  int starts_ = 0;
  std::optional<FailureReport> failure_;
  std::optional<std::uint64_t> zygote_bytes_;
  bool awaits_end_ = false;      // What the failed worker left is not read yet.
  std::optional<Instant> sent_;  // When the last report was sent.
  std::optional<Instant> due_;   // When the timer sends the next report.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace muster
