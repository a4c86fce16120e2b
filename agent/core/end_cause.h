// Why a job ended, if no worker's failure was the cause: for the files that programs read.
#pragma once

#include <string>
#include <utility>

namespace muster {

struct EndCause {
  std::string kind;       // For --failure-report: "signalled", "start_failed" …
  std::string exception;  // torchrun's exception class, which parent processes look for.
  std::string text;

  /// The last line of a Python traceback: "SignalException: Process 7 got signal: 15".
  std::string line() const { return exception + ": " + text; }
};

/// muster cannot do what the command line or the environment asks for, and started nothing.
inline EndCause refusal(std::string text) {
  return {"refused", "ValueError", std::move(text)};
}
/// A resource of this machine was missing: a file, a thread, disk space.
inline EndCause missing_resource(std::string text) {
  return {"start_failed", "OSError", std::move(text)};
}
/// The process that the user started was killed or crashed.
inline EndCause front_lost(std::string text) {
  return {"front_lost", "RuntimeError", std::move(text)};
}
/// The shim was killed or crashed.
inline EndCause shim_lost(std::string text) {
  return {"shim_lost", "RuntimeError", std::move(text)};
}
/// The agent was killed, crashed or hung.
inline EndCause agent_lost(std::string text) {
  return {"agent_lost", "RuntimeError", std::move(text)};
}

}  // namespace muster
