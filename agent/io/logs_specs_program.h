// The program that runs the plug-in of --logs-specs: the workers' Python. It lives from before the
// rendezvous until the job's end, as torchrun keeps the plug-in's object.
//
// What the plug-in prints goes to the console, as under torchrun. Questions and answers are lines
// on a socket (agent/core/logs_specs.h).

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/logs_specs.h"
#include "agent/core/worker_env.h"
#include "agent/posix/helper_process.h"

namespace muster {

/// Running operations keep this object alive.
class LogsSpecsProgram : public std::enable_shared_from_this<LogsSpecsProgram> {
 public:
  /// Starts nothing yet. `specs` and `options` outlive this object.
  LogsSpecsProgram(boost::asio::io_context& io, const LogsSpecsOptions& specs,
                   const AgentOptions& options, std::vector<std::string> environment);

  /// Starts the program and loads the plug-in; a call after that succeeds at once. `problem` says
  /// to the user why it failed, and is empty if the plug-in is loaded.
  void load(std::function<void(const std::string& problem)> done);

  using DestResult = boost::system::result<LogsDest, LogsSpecsError>;
  /// Asks the plug-in where the workers' output goes, for one attempt. If an earlier question is
  /// not answered yet, this one waits for that answer. Only the newest one waits.
  void request_dest(const std::vector<Variables>& environments,
                    std::function<void(const DestResult&)> done);

  /// Lets the program end by itself, so that the plug-in can clean up. Kills it if that takes too
  /// long, or if a question is not answered yet. From now on no `done` but this one is called.
  void close(std::function<void()> done);

 private:
  using Line = boost::system::result<std::string, LogsSpecsError>;
  using Answered = std::function<void(const Line&)>;

  boost::asio::awaitable<void> start_and_load(std::function<void(const std::string&)> done);
  boost::asio::awaitable<boost::system::error_code> find();
  boost::system::error_code start();
  std::string with_name(std::string_view problem) const;
  std::string cannot_start(const boost::system::error_code& why) const;
  void ask(std::string question, Answered done);
  boost::asio::awaitable<void> exchange(std::string text, Answered done);
  void answered(const Line& line, const Answered& done);
  boost::asio::awaitable<boost::system::error_code> round_trip(std::string& text);
  boost::asio::awaitable<void> wait_for_end(std::function<void()> done);

  boost::asio::io_context& io_;
  const LogsSpecsOptions& specs_;
  const AgentOptions& options_;
  const std::vector<std::string> environment_;
  boost::asio::local::stream_protocol::socket socket_;
  std::vector<std::string> command_;  // Its first word is the program's path.
  std::optional<HelperProcess> helper_;
  std::string answers_;           // Bytes that were read after the last answer.
  bool request_pending_ = false;  // A question is not answered yet.
  /// The question that follows it: the attempt of the earlier one was given up meanwhile.
  std::optional<std::pair<std::string, Answered>> next_;
  bool loaded_ = false;
  bool closed_ = false;
};

}  // namespace muster
