// The program that has the plug-in of --logs-specs in it: the workers' Python, kept from before the
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
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/logs_specs.h"
#include "agent/core/worker_env.h"
#include "agent/posix/helper_process.h"

namespace muster {

/// What is under way keeps it alive.
class LogsSpecsProgram : public std::enable_shared_from_this<LogsSpecsProgram> {
 public:
  /// Nothing is started yet. `specs` and `options` outlive it.
  LogsSpecsProgram(boost::asio::io_context& io, const LogsSpecsOptions& specs,
                   const AgentOptions& options, std::vector<std::string> environment);

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
  using Line = boost::system::result<std::string, LogsSpecsError>;
  using Answered = std::function<void(const Line&)>;

  boost::asio::awaitable<void> start_and_load(std::function<void(const std::string&)> done);
  boost::asio::awaitable<boost::system::error_code> find();
  boost::system::error_code start();
  std::string with_name(std::string_view problem) const;
  std::string cannot_start(const boost::system::error_code& why) const;
  void ask(std::string question, Answered done);
  boost::asio::awaitable<void> exchange(std::string text, Answered done);
  boost::asio::awaitable<boost::system::error_code> talk(std::string& text);
  boost::asio::awaitable<void> wait_for_end(std::function<void()> done);

  boost::asio::io_context& io_;
  const LogsSpecsOptions& specs_;
  const AgentOptions& options_;
  const std::vector<std::string> environment_;
  boost::asio::local::stream_protocol::socket socket_;
  std::vector<std::string> command_;  // The program's path first.
  std::optional<HelperProcess> helper_;
  std::string answers_;  // Read, and behind the last line taken.
  bool asked_ = false;   // A question is not answered yet.
  bool loaded_ = false;
  bool closed_ = false;
};

}  // namespace muster
