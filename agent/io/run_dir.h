// The directory of one run's logs and error files. A temporary one is removed at the run's end.

#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "rendezvous/core/result.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

class RunDir {
 public:
  /// Chooses <log dir>/<run id>_<8 characters>. Without --log-dir, <log dir> is a new temporary
  /// directory: in memory if it is for error files alone, else where TMPDIR says, and in the next
  /// place if one cannot be used. With --log-dir /dev/null there is no directory, and path() stays
  /// empty. Creates nothing yet, and does not ask storage.
  static RunDir choose(const AgentOptions& options);

  /// Creates the directory. This process then owns a temporary one (agent/io/owned_folder.h) as
  /// long as this object lives. `what_failed` names the path. If this process can be killed, the
  /// process that then calls remove() must have a copy of this object from before.
  boost::system::error_code create(std::string& what_failed);

  /// True if a temporary directory was created, and does not exist any more: it was removed, as
  /// XDG_RUNTIME_DIR is when its user logs out. create() then creates one again, under the same
  /// names. So every process that has a copy of this object knows what to remove.
  bool is_lost() const;

  /// Creates a directory in --log-dir again if it was removed. False if its path now leads to
  /// another directory: a user who may rename entries of --log-dir can put one there, and would
  /// read the logs of later attempts.
  bool restore_in_log_dir();

  /// Empty until the directory is created.
  const std::string& path() const { return path_; }

  /// The lock on a temporary directory. Not open if there is no lock.
  const OwnedFd& lock() const { return lock_; }

  /// One line that says which place could not be used and why, and which one is used instead. Empty
  /// if the first choice is used.
  const std::string& fallback() const { return fallback_; }

  /// The names that are in the directory now.
  std::vector<std::string> entries() const;

  /// Removes those of an earlier attempt's `directories` that are empty, if the run directory is
  /// temporary: many restarts then leave no more names than one. A --log-dir keeps them.
  void remove_empty(const std::vector<std::string>& directories) const;

  /// Removes a temporary directory: always after success, else only if nothing was written there.
  void remove(bool success) const;

  /// Removes temporary directories beside this one to which nothing was written, and whose owners
  /// were killed before they could remove them. Examines a bounded number of names.
  void remove_orphans() const;

 private:
  struct Temporary {
    std::string path;
    bool only_in_memory = false;  // This place is passed over if it is not in memory.
  };
  boost::system::error_code create_in_log_dir();
  boost::system::error_code create_temporary(const std::string& temporary);

  std::string run_name_;                // The directory's name; empty: there is none.
  std::string log_dir_;                 // --log-dir; empty: a temporary directory.
  std::vector<Temporary> temporaries_;  // Where to create it, in order. One name in several places.
  int workers_ = 0;
  std::string created_;  // The one of `temporaries_` that was created.
  OwnedFd lock_;         // On `created_`.
  std::string path_;
  std::optional<struct stat> made_;  // The directory in --log-dir that was created.
  std::string fallback_;
};

}  // namespace muster
