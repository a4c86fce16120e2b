// The program that has the plug-in of --logs-specs in it: the workers' Python, kept from before the
// rendezvous until the job's end, as torchrun keeps the plug-in's object.
//
// What the plug-in prints goes to the console, as under torchrun. Questions and answers are lines
// on a socket (agent/core/logs_specs.h).

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/logs_specs.h"
#include "agent/core/worker_env.h"

namespace muster {

class LogsSpecsProgram {
 public:
  /// Nothing is started yet. `specs` and `options` outlive it.
  LogsSpecsProgram(boost::asio::io_context& io, const LogsSpecsOptions& specs,
                   const AgentOptions& options, std::vector<std::string> environment);
  LogsSpecsProgram(const LogsSpecsProgram&) = delete;
  LogsSpecsProgram& operator=(const LogsSpecsProgram&) = delete;
  ~LogsSpecsProgram();

  /// Starts it with the first call; a later one is answered at once. The text is why it failed, for
  /// the user; empty: it has the plug-in.
  void load(std::function<void(const std::string& problem)> done);

  using Placed = boost::system::result<LogsDest, LogsSpecsError>;
  /// For each attempt: where the workers' output goes. One question at a time.
  void place(const std::vector<Variables>& environments, std::function<void(const Placed&)> done);

  /// Lets it end in its own way, so that a plug-in may tidy up; kills it if that takes too long, or
  /// if it has not answered yet. Nothing is answered any more but this.
  void close(std::function<void()> done);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
