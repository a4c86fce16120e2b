// The program of --notice-from: it says when this node will go.
//
// Its stdout is read line by line (agent/core/node_notice.h), its stderr is the agent's. A program
// that fails is started again, after a pause that grows.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/node_notice.h"
#include "agent/posix/helper_process.h"
#include "base/result.h"
#include "base/time.h"

namespace muster {

/// Running operations keep this object alive.
class NoticeSource : public std::enable_shared_from_this<NoticeSource> {
 public:
  struct Options {
    std::string command;  // A line for /bin/sh.
    std::vector<std::string> environment;
    Duration left_at_end{};  // What a program that ends with 0 and has given no notice means.
  };
  NoticeSource(boost::asio::io_context& io, Options options,
               std::function<void(const NodeGoes&)> on_notice);

  void start();
  /// Sends SIGTERM to the program and its children, and SIGKILL two seconds later to those that
  /// still have its stdout. No notice comes any more.
  void close(std::function<void()> done);

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  boost::asio::awaitable<void> run();
  /// Runs the program once. Returns why it has failed, or nothing if it has ended with 0.
  boost::asio::awaitable<std::string> run_once();
  boost::asio::awaitable<void> read_lines();
  boost::asio::awaitable<void> read_to_end();
  boost::asio::awaitable<void> wait_for_end(std::function<void()> done);
  boost::system::error_code begin();
  void read_rest();
  void report_lines();

  boost::asio::io_context& io_;
  const Options options_;
  const std::function<void(const NodeGoes&)> on_notice_;
  boost::asio::steady_timer pause_;
  std::optional<HelperProcess> helper_;
  Descriptor output_;  // The end of the pipe that is the program's stdout.
  NoticeProgramLines lines_;
  bool has_notified_ = false;  // In this run of the program.
  bool closed_ = false;
};

}  // namespace muster
