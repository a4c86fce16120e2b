// The directory of one run's logs and error files: made when it is needed, tidied when it is over.

#pragma once

#include <string>
#include <vector>

#include "agent/core/agent_options.h"
#include "rendezvous/core/result.h"

namespace muster {

class RunDir {
 public:
  /// Makes <log dir>/<run id>_<8 characters>, or that in a new temporary directory (in memory
  /// if it is for error files alone). With
  /// --log-dir /dev/null there is none, and path() is empty. `what_failed` names the path.
  static Result<RunDir> make(const AgentOptions& options, std::string& what_failed);

  const std::string& path() const { return path_; }

  /// Names in the directory now.
  std::vector<std::string> entries() const;

  /// Removes a temporary directory: whole after success, else only if nothing was written there.
  void tidy(bool success) const;

 private:
  std::string path_;
  std::string temporary_;  // The part that was made by us in TMPDIR; empty: the user chose it.
};

/// `count` characters of a-z0-9 from the kernel's generator.
std::string random_name(std::size_t count);

}  // namespace muster
