// The directory of one run's logs and error files. A temporary one is removed at the run's end.

#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "agent/io/temporary_folder.h"
#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

class RunDir {
 public:
  /// Chooses <log dir>/<run id>_<8 characters>. Without --log-dir, <log dir> is a new temporary
  /// folder: in memory if it is for error files alone. With --log-dir /dev/null there is no
  /// directory, and path() stays empty. Creates nothing yet, and does not ask storage.
  static RunDir choose(const AgentOptions& options);

  /// Creates the directory. `what_failed` names the path. See TemporaryFolder::create().
  boost::system::error_code create(std::string& what_failed);
  /// Whether a job cannot run without the directory: the user has asked for logs. Else only error
  /// files would be in it.
  bool is_needed() const { return is_needed_; }

  /// TemporaryFolder::is_lost(). False in --log-dir.
  bool is_lost() const { return temporary_.is_lost(); }

  /// Creates a directory in --log-dir again if it was removed. False if its path now leads to
  /// another directory, and another user may have put it there: who may rename entries of --log-dir
  /// would read the logs of later attempts.
  bool restore_in_log_dir();

  /// Empty until the directory is created.
  const std::string& path() const { return path_; }

  /// The folder for a socket, whose path may have 107 bytes at most: the run directory or, if that
  /// is in a temporary folder, the latter.
  const std::string& socket_folder() const {
    return temporary_.path().empty() ? path_ : temporary_.path();
  }

  /// The lock on a temporary directory. Not open if there is no lock.
  const OwnedFd& lock() const { return temporary_.lock(); }

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

  /// TemporaryFolder::remove_orphans()
  void remove_orphans() const { temporary_.remove_orphans(); }

 private:
  boost::system::error_code create_in_log_dir();
  bool may_be_planted(const struct stat& found) const;
  boost::system::error_code create_in_temporary_folder(std::string& what_failed);

  std::string run_name_;       // The directory's name; empty: there is none.
  std::string log_dir_;        // --log-dir; empty: a temporary folder.
  TemporaryFolder temporary_;  // Without --log-dir.
  bool is_needed_ = false;
  int workers_ = 0;
  std::string path_;
  std::optional<struct stat> made_;  // The directory in --log-dir that was created.
  bool made_on_local_disk_ = false;
  std::string fallback_;
};

}  // namespace muster
