// A program that the agent runs for its own use, for example to print stacks. It is started like a
// worker, watched through its pidfd, and killed when the agent ends.

#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/worker_end.h"
#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

class HelperProcess {
 public:
  /// Begins to start argv[0], a path. Its stdin is /dev/null; stdout and stderr go into one file in
  /// memory. Does not wait for the program, as it may be on storage that does not answer.
  static Result<HelperProcess> start(const std::vector<std::string>& argv,
                                     const std::vector<std::string>& environment);
  /// Begins to start argv[0] with `socket`, which the caller still owns, as its stdin. Its stdout
  /// and stderr are the agent's.
  static Result<HelperProcess> start_on_socket(const std::vector<std::string>& argv,
                                               const std::vector<std::string>& environment,
                                               int socket);
  /// Begins to start argv[0] with `output`, which the caller still owns, as its stdout. Its stdin
  /// is /dev/null, its stderr the agent's.
  static Result<HelperProcess> start_with_stdout(const std::vector<std::string>& argv,
                                                 const std::vector<std::string>& environment,
                                                 int output);
  HelperProcess(HelperProcess&& other) noexcept = default;
  ~HelperProcess() { finish(); }

  /// A descriptor that is readable when the process has ended. This object owns it.
  int pidfd() const { return pidfd_.get(); }
  /// Why the program could not be executed. No error if it was executed, or if that is not known
  /// yet. It is known when the process has ended or has closed its stdin.
  boost::system::error_code start_error();
  /// Sends a signal to the process and its group, unless it was reaped.
  void signal(int number) const;
  /// How the process has ended. Empty until finish() has reaped it.
  const std::optional<WorkerExit>& exit() const { return exit_; }
  /// Kills the process if it lives, and reaps it. True if it had exited by itself with 0.
  bool finish();
  /// The output so far, up to `bytes_max`.
  std::string output(std::size_t bytes_max) const;

 private:
  HelperProcess() = default;
  boost::system::error_code spawn(const std::vector<std::string>& argv,
                                  const std::vector<std::string>& environment,
                                  const std::array<int, 3>& fds);
  pid_t pid_ = 0;
  OwnedFd pidfd_;
  OwnedFd status_;                      // BegunSpawn::status
  std::shared_ptr<const void> memory_;  // BegunSpawn::memory
  OwnedFd output_;                      // Not open: the output is the agent's own.
  std::optional<WorkerExit> exit_;
};

/// Sends a signal to `pid` if it is one of the workers `leaders`, a descendant of one, or in the
/// session of one. Returns that worker's pid. Returns 0, and sends nothing, if the process belongs
/// to no worker or has ended. With a `number` of 0 it only finds the worker.
pid_t signal_family_member(pid_t pid, const std::set<pid_t>& leaders, int number);

/// Continues a process of these workers that a tracer has left stopped.
void resume_process(pid_t pid, const std::set<pid_t>& leaders);

}  // namespace muster
