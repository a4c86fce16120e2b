// Answers questions that people ask this node through the host: for a piece of a worker's log, or
// for a worker's stacks. Each answer is bounded; files are read on the log thread.
#pragma once

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/io/hang_response.h"
#include "agent/io/log_work.h"
#include "agent/io/worker_group.h"
#include "rendezvous/core/node_report.h"

namespace muster {

class NodeAnswers {
 public:
  using Done = std::function<void(NodeAnswered)>;
  NodeAnswers(boost::asio::io_context& io, LogWork& work, HangResponse& hangs)
      : io_(io), work_(work), hangs_(hangs) {}

  /// `attempt` is how often the workers were started. `done` is called once, on the loop, unless
  /// the log thread hangs or the job ends before.
  void answer(const NodeAsked& asked, const WorkerGroup& group, int attempt, Done done);

 private:
  void read(std::string path, std::int64_t offset, int attempt, Done done);

  boost::asio::io_context& io_;
  LogWork& work_;
  HangResponse& hangs_;
};

/// At most kMaxPieceBytes of a file, from `offset`. A negative offset counts from the file's end.
NodeAnswered read_piece(const std::string& path, std::int64_t offset);

}  // namespace muster
