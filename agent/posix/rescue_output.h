// Copies what the workers write after the agent's death from their pipes into their log files.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/system/owned_fd.h"

namespace muster {

/// The reading end of a pipe that a worker writes into.
struct OutputReader {
  OwnedFd fd;        // Non-blocking.
  std::string file;  // The file to which the agent appended the bytes; empty: they are dropped.
  /// An O_PATH descriptor of `file`, which leads to it also when it is renamed. Not open: the file
  /// is opened by its name.
  OwnedFd handle = {};
};

/// Takes over from a dead agent: copies the bytes in the workers' pipes to the agent's files.
class OutputRescue {
 public:
  void add(std::vector<OutputReader> readers);
  /// Forks children that copy until no process holds a writing end any more: one for each console,
  /// one for all log files, one for the bytes to drop. So nothing else waits for a console that
  /// nobody reads, or for log files on storage that hangs. A file that cannot be opened or written
  /// loses its bytes. If fork() fails, the pipes stay open, and the next call tries again. False:
  /// everything is copied.
  bool begin();
  /// The pids of the children that still copy. They may hang, so wait for them with a limit. The
  /// kernel kills them when their parent ends.
  const std::set<pid_t>& processes() const { return processes_; }
  /// To be called with each child that was reaped. True if `child` is a copying child.
  bool handle_child_end(pid_t child) { return processes_.erase(child) > 0; }

 private:
  using Readers = std::vector<OutputReader>;
  void copy_in_child(const std::string& group, pid_t parent);

  std::map<std::string, Readers> waiting_;  // Those without a child, by group.
  std::set<pid_t> processes_;
};

}  // namespace muster
