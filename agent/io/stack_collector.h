// Writes where workers stand: Python and native stacks, and what the kernel tells, into their
// directories. Other programs do it (py-spy, gdb, eu-stack), each for a bounded time; what /proc
// says is always there.

#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/stack_text.h"
#include "rendezvous/core/ids.h"
#include "rendezvous/core/time.h"

namespace muster {

class StackFiles;

class StackCollector {
 public:
  struct Target {
    LocalRank rank;
    pid_t pid = 0;
    std::string dir;  // Where its file goes, as stacks.<n>.txt: never over another file. Empty:
                      // into a new temporary directory, which stays.
  };
  struct Evidence {
    LocalRank rank;
    pid_t pid = 0;
    std::string file;  // Empty: none could be written; then `problem` says why.
    std::optional<StandingLine> line;
    std::string problem;  // What kept us from seeing the stacks, and what to do; empty: nothing.
  };
  using Done = std::function<void(std::vector<Evidence>)>;

  /// `environment`: for the programs; its PATH says where they are.
  StackCollector(boost::asio::io_context& io, std::vector<std::string> environment);

  bool busy() const { return busy_; }
  /// `why` is the files' first line; `python` is the workers' program, beside which py-spy may be.
  /// Calls `done` within about a minute, in the order of the targets. Not while busy.
  void collect(std::vector<Target> targets, std::string why, const std::string& python, Done done);
  /// Ends every program that is running, now; `done` is not called any more.
  void cancel();

 private:
  struct Job;

  boost::asio::io_context& io_;
  const std::vector<std::string> environment_;
  std::shared_ptr<StackFiles> files_;
  std::weak_ptr<Job> job_;
  bool busy_ = false;
};

}  // namespace muster
