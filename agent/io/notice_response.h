// What this node does when nodes of its job will go: tells the host that this node goes, tells the
// workers what the host says, and tells the host when the workers have saved.
//
// docs/preemption.md describes it for users, and docs/worker_channel.md what workers see.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/notice_answers.h"
#include "agent/core/worker_table.h"
#include "agent/io/notice_source.h"
#include "agent/io/worker_channel.h"
#include "agent/sessions/rendezvous_session.h"

namespace muster {

class NoticeResponse : public WorkerObserver {
 public:
  struct Handlers {
    std::function<void(const NodeNotice&)> tell_host;  // This node goes.
    std::function<void()> tell_saved;                  // The host: all workers have answered.
    /// The workers have been told that the job stops, or goes on without nodes, at this time.
    std::function<void(Instant deadline)> on_told;
  };
  NoticeResponse(boost::asio::io_context& io, const AgentOptions& options, WorkerTable& workers,
                 Handlers handlers);
  ~NoticeResponse() override = default;
  NoticeResponse(const NoticeResponse&) = delete;
  NoticeResponse& operator=(const NoticeResponse&) = delete;

  /// Workers are told, and answer, through this channel. Null: there is none.
  void set_channel(WorkerChannel* channel) { channel_ = channel; }

  /// Starts the program of --notice-from, if there is one.
  void begin(const std::vector<std::string>& environment);
  /// Ends that program.
  void close(std::function<void()> done);

  /// False if the signal is none of --notice-signals.
  bool on_signal(int number);
  /// A signal ends this node. The other nodes are told why it leaves.
  void node_leaves(int number);
  /// The host says that nodes of the job will go.
  void on_job_notice(const JobNotice& notice);
  /// This node joins the rendezvous again. The host tells it of the notice again, if it still
  /// holds.
  void joins() { notice_.reset(); }
  void on_saved(const WorkerSaved& saved);
  /// The end of a worker is known, and will be handled now: reads first what it has sent.
  void before_worker_ends();
  bool has_answered(LocalRank rank) const { return answers_.has_answered(rank); }
  bool has_answered_ahead(LocalRank rank) const { return answers_.has_answered_ahead(rank); }

  void attempt_begins() override;
  void attempt_ends() override { has_workers_ = false; }
  void worker_ended(const RunningWorker& worker, const WorkerExit& exit) override;

 private:
  void node_goes(const NodeGoes& goes);
  void tell_workers(const JobNotice& notice);
  void check_answers_later();

  boost::asio::io_context& io_;
  const AgentOptions& options_;
  const Handlers handlers_;
  WorkerChannel* channel_ = nullptr;
  std::shared_ptr<NoticeSource> source_;  // Null without --notice-from.
  NoticeAnswers answers_;
  std::optional<JobNotice> notice_;                   // Of the round that runs or begins.
  bool has_workers_ = false;                          // Workers run that are not being stopped.
  std::optional<std::pair<int, Instant>> signalled_;  // The last signal of --notice-signals.
  bool leaves_ = false;                               // A signal ends this node.
  std::int64_t told_ = 0;                             // Notices without a channel.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Expires with this object.
};

}  // namespace muster
