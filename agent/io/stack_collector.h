// Writes the stacks of workers into files in their directories: Python stacks, native stacks, and
// the state of threads in the kernel. Tools (py-spy, gdb, eu-stack) read the stacks, each in a
// bounded time; the state in the kernel comes from /proc, without a tool.

#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/stack_text.h"
#include "base/ids.h"
#include "base/time.h"

namespace muster {

class StackFiles;

class StackCollector {
 public:
  struct Target {
    LocalRank rank;
    pid_t pid = 0;
    std::string dir;  // For its file stacks.<n>.txt, which never replaces another file. Empty: a
                      // new temporary directory, which stays.
  };
  struct Evidence {
    LocalRank rank;
    pid_t pid = 0;
    std::string file;  // Empty if none could be written; `problem` says why.
    std::optional<CurrentLine> line;
    std::string problem;  // Why stacks are missing, and what to do; else empty.
  };
  using Done = std::function<void(std::vector<Evidence>)>;

  /// `environment` is for the tools, which are looked up in its PATH.
  StackCollector(boost::asio::io_context& io, std::vector<std::string> environment);

  bool busy() const { return busy_; }
  /// `why` is part of each file's first line. `python` is the workers' program: py-spy is also
  /// looked up beside it. Calls `done` within about a minute, with the evidence in the order of the
  /// targets. Not to be called while busy().
  void collect(std::vector<Target> targets, std::string why, const std::string& python, Done done);
  /// Ends every tool that is running, at once. `done` is not called any more.
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
