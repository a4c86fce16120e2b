// A program that the agent runs for itself, such as one that prints stacks: started like a worker,
// watched by its pidfd, killed with the agent.

#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/core/result.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

class HelperProcess {
 public:
  /// Begins to start argv[0], a path, with stdin from /dev/null and both outputs into one file in
  /// memory. Does not wait: the program may be on storage that does not answer.
  static Result<HelperProcess> start(const std::vector<std::string>& argv,
                                     const std::vector<std::string>& environment);
  /// Starts it with `socket`, which stays the caller's, as its stdin; it prints where we print.
  static Result<HelperProcess> start_on_socket(const std::vector<std::string>& argv,
                                               const std::vector<std::string>& environment,
                                               int socket);
  HelperProcess(HelperProcess&& other) noexcept = default;
  ~HelperProcess() { finish(); }

  /// Readable once it has ended. Ours.
  int pidfd() const { return pidfd_.get(); }
  /// Why the program could not be executed. No error as long as that is not known: it is when the
  /// process has ended, or has closed its stdin.
  boost::system::error_code start_error();
  /// Kills it if it lives, reaps it; true if it had exited with 0 by itself.
  bool finish();
  /// What it has written so far, up to `bytes_max`.
  std::string output(std::size_t bytes_max) const;

 private:
  HelperProcess() = default;
  boost::system::error_code spawn_it(const std::vector<std::string>& argv,
                                     const std::vector<std::string>& environment,
                                     const std::array<int, 3>& fds);
  OwnedFd pidfd_;
  OwnedFd status_;  // Of begin_spawn(), as is the next.
  std::shared_ptr<const void> memory_;
  OwnedFd output_;  // None: it prints where we print.
};

/// Sends a signal to `pid` if it is one of the workers `leaders`, a descendant of one, or in the
/// session of one. Returns that worker's pid; 0: it is nobody's, or has ended, and nothing was
/// sent. A `number` of 0 only looks.
pid_t signal_family_member(pid_t pid, const std::set<pid_t>& leaders, int number);

/// Lets a process of these workers go on that a tracer has left stopped.
void resume_process(pid_t pid, const std::set<pid_t>& leaders);

}  // namespace muster
