// The directory of one run's logs and error files: made when it is needed, tidied when it is over.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "rendezvous/core/result.h"

namespace muster {

class RunDir {
 public:
  /// Chooses <log dir>/<run id>_<8 characters>, or that in a new temporary directory, which names
  /// the calling process as its owner: in memory if it is for error files alone, else where TMPDIR
  /// says, and in the next place where one cannot be used. With --log-dir /dev/null there is none,
  /// and path() stays empty. Nothing is made yet.
  static RunDir choose(const AgentOptions& options);

  /// Makes it. `what_failed` names the path. In a process that can be killed, whoever is to tidy()
  /// then must have been told of the choice before.
  boost::system::error_code make(std::string& what_failed);

  /// Empty until it is made.
  const std::string& path() const { return path_; }

  /// Which place could not be used and why, and which one is, in one line; empty if it is the first
  /// choice.
  const std::string& fallback() const { return fallback_; }

  /// Names in the directory now.
  std::vector<std::string> entries() const;

  /// Removes those of an earlier attempt's `directories` that nothing was written to, where the
  /// place is temporary: many restarts leave no more names than one. A --log-dir keeps them.
  void remove_empty(const std::vector<std::string>& directories) const;

  /// Removes a temporary directory: whole after success, else only if nothing was written there.
  void tidy(bool success) const;

  /// Does the same for temporary directories beside this one whose owners are gone: killed before
  /// they could. Looks at a bounded number of names.
  void tidy_after_dead_owners() const;

 private:
  boost::system::error_code make_in_log_dir();
  boost::system::error_code make_temporary(const std::string& temporary);

  std::string run_name_;                  // Of the directory; empty: there is none.
  std::string log_dir_;                   // What the user chose for it; empty: the first of these
  std::vector<std::string> temporaries_;  // that can be made. One name in several places.
  int workers_ = 0;
  std::string made_;  // Which of them has been made.
  std::string path_;
  std::string fallback_;
};

}  // namespace muster
