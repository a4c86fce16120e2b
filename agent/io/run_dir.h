// The directory of one run's logs and error files: made when it is needed, tidied when it is over.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "rendezvous/core/result.h"

namespace muster {

class RunDir {
 public:
  /// Chooses <log dir>/<run id>_<8 characters>, or that in a new temporary directory (in memory if
  /// it is for error files alone), which names the calling process as its owner. With --log-dir
  /// /dev/null there is none, and path() is empty. Nothing is made yet.
  static RunDir choose(const AgentOptions& options);

  /// Makes it. `what_failed` names the path. In a process that can be killed, whoever is to tidy()
  /// then must have been told of the choice before.
  boost::system::error_code make(std::string& what_failed) const;

  const std::string& path() const { return path_; }

  /// Names in the directory now.
  std::vector<std::string> entries() const;

  /// Removes a temporary directory: whole after success, else only if nothing was written there.
  void tidy(bool success) const;

  /// Does the same for temporary directories beside this one whose owners are gone: killed before
  /// they could. Looks at a bounded number of names.
  void tidy_after_dead_owners() const;

 private:
  std::string base_;  // What path_ is in; empty: there is none.
  std::string path_;
  std::string temporary_;  // The part that was made by us in TMPDIR; empty: the user chose it.
};

/// `count` characters of a-z0-9 from the kernel's generator.
std::string random_name(std::size_t count);

}  // namespace muster
