// What the workers write after the agent's death: from their pipes into their log files.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rendezvous/net/owned_fd.h"

namespace muster {

/// The reading end of a pipe that a worker writes into.
struct OutputReader {
  OwnedFd fd;        // Non-blocking.
  std::string file;  // Where the agent appended the bytes to; empty: they are thrown away.
};

/// Copies what comes through the pipes of a dead agent's workers to where the agent copied it.
class OutputRescue {
 public:
  /// Copies these, too, if it has not begun.
  void take(std::vector<OutputReader> readers);
  /// Forks a child that copies until nobody holds a writing end any more. A file that cannot be
  /// opened or written loses its bytes; the worker is never held up. Later calls do nothing.
  void begin();
  /// The child's pid; -1 if there is none, because there was nothing to do, no process could be
  /// made, or it has ended. It may hang on its storage: whoever waits for it does so for a bounded
  /// time. It dies with its parent.
  pid_t process() const { return process_; }
  /// Whether the child that was reaped is this one.
  bool ended(pid_t child);

 private:
  std::vector<OutputReader> readers_;
  bool begun_ = false;
  pid_t process_ = -1;
};

}  // namespace muster
