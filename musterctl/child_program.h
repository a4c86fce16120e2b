// A program that musterctl starts. musterctl reads its output and can write to its stdin.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster::ctl {

class ChildProgram {
 public:
  enum class Stdin { Null, Pipe };

  /// Starts argv[0], a path, with exactly this environment. The program shares musterctl's stderr.
  /// It gets SIGTERM when the calling thread ends. The error says why it could not be executed.
  static Result<ChildProgram> start(const std::vector<std::string>& argv,
                                    const std::vector<std::string>& environment, Stdin in);
  ChildProgram(ChildProgram&& other) noexcept;
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;
  ChildProgram& operator=(ChildProgram&&) = delete;
  ~ChildProgram();  // Kills and reaps the program.

  /// The reading end of the program's stdout, and the writing end of its stdin if that is a pipe.
  OwnedFd output;
  OwnedFd input;

  /// Waits until the program ends. Returns "exit status 1" or "signal 9"; empty: exit status 0.
  std::string wait();

 private:
  ChildProgram() = default;
  pid_t pid_ = -1;
};

/// The environment of this process, as NAME=VALUE.
std::vector<std::string> own_environment();

}  // namespace muster::ctl
