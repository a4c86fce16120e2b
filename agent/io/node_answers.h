// Answers questions that people ask this node through the host: for a piece of a worker's log, or
// for a worker's stacks. Each answer is bounded; files are read on the log thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/attempt_logs.h"
#include "agent/core/log_cut.h"
#include "agent/io/hang_response.h"
#include "agent/io/log_work.h"
#include "rendezvous/rounds/node_report.h"

namespace muster {

class NodeAnswers {
 public:
  using Done = std::function<void(NodeAnswered)>;
  NodeAnswers(boost::asio::io_context& io, LogWork& work, HangResponse& hangs)
      : io_(io), work_(work), hangs_(hangs) {}

  /// Attempt `number`, the number of starts, begins.
  void attempt_begins(int number, std::vector<WorkerLogs> workers) {
    logs_.begin(number, std::move(workers));
  }
  /// `done` is called once, on the loop, unless the log thread hangs or the job ends before.
  void answer(const NodeAsked& asked, Done done);

 private:
  void read(std::vector<LogPart> parts, Done done);

  boost::asio::io_context& io_;
  LogWork& work_;
  HangResponse& hangs_;
  AttemptLogs logs_;
};

/// At most kMaxPieceBytes of a file, from a position on (LogCut). A negative one counts from the
/// file's end. `cut`: if the log thread writes the file, what it has removed; only that thread may
/// then call this.
NodeAnswered read_piece(const std::string& path, std::int64_t position,
                        const LogCut& cut = LogCut(0));

/// Reads the first of the parts that has bytes to read, or else the last one. `parts` is not empty.
NodeAnswered read_first(const std::vector<LogPart>& parts);

}  // namespace muster
