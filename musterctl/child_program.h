// A program that musterctl starts: it reads what the program prints, and may write to it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "rendezvous/core/result.h"
#include "rendezvous/net/owned_fd.h"

namespace muster::ctl {

class ChildProgram {
 public:
  enum class Stdin { Null, Pipe };

  /// Starts argv[0], a path, with exactly this environment. Its stderr is ours. It gets SIGTERM
  /// when the thread that calls this ends. The error is why it could not be executed.
  static Result<ChildProgram> start(const std::vector<std::string>& argv,
                                    const std::vector<std::string>& environment, Stdin in);
  ChildProgram(ChildProgram&& other) noexcept;
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;
  ChildProgram& operator=(ChildProgram&&) = delete;
  ~ChildProgram();  // Kills and reaps it.

  /// What it prints on stdout, to read from; and its stdin, if that is a pipe.
  OwnedFd output;
  OwnedFd input;

  /// Waits until it has ended: "exit status 1", "signal 9"; empty: with status 0.
  std::string wait();

 private:
  ChildProgram() = default;
  pid_t pid_ = -1;
};

/// The environment of this process, as NAME=VALUE.
std::vector<std::string> own_environment();

}  // namespace muster::ctl
