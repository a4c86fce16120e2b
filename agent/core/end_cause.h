// Why a job ended when it was no worker's failure: for the files that programs read.
#pragma once

#include <string>
#include <utility>

namespace muster {

struct EndCause {
  std::string kind;       // For --failure-report: "signalled", "start_failed" …
  std::string exception;  // torchrun's class for it, which its parents look for.
  std::string text;

  /// As Python ends a traceback with it: "SignalException: Process 7 got signal: 15".
  std::string line() const { return exception + ": " + text; }
};

/// muster could not do what the command line or the environment asks for: nothing was started.
inline EndCause refusal(std::string text) {
  return {"refused", "ValueError", std::move(text)};
}
/// Something of this machine was missing: a file, a thread, room on a disk.
inline EndCause lack(std::string text) {
  return {"start_failed", "OSError", std::move(text)};
}
/// The agent was killed, crashed or hung.
inline EndCause agent_lost(std::string text) {
  return {"agent_lost", "RuntimeError", std::move(text)};
}

}  // namespace muster
