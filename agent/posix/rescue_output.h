// Copies what the workers write after the agent's death from their pipes into their log files.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rendezvous/net/owned_fd.h"

namespace muster {

/// The reading end of a pipe that a worker writes into.
struct OutputReader {
  OwnedFd fd;        // Non-blocking.
  std::string file;  // The file to which the agent appended the bytes; empty: they are dropped.
};

/// Takes over from a dead agent: copies the bytes in the workers' pipes to the agent's files.
class OutputRescue {
 public:
  /// Adds pipes to copy. Calls after begin() have no effect.
  void add(std::vector<OutputReader> readers);
  /// Forks a child that copies until no process holds a writing end any more. A file that cannot
  /// be opened or written loses its bytes: the child never blocks a worker for that. Later calls
  /// do nothing.
  void begin();
  /// The pid of that child. -1 if there is no child: there was nothing to copy, fork() failed, or
  /// the child has ended. The child may hang on its storage, so wait for it with a limit. The
  /// kernel kills the child when its parent ends.
  pid_t process() const { return process_; }
  /// To be called with each child that was reaped. True if `child` is the copying child.
  bool handle_child_end(pid_t child);

 private:
  std::vector<OutputReader> readers_;
  bool begun_ = false;
  pid_t process_ = -1;
};

}  // namespace muster
