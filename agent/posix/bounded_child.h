// Runs work that may hang, such as a write to a file server that does not answer, in a child
// process. The caller waits for a limited time. The caller must not ignore SIGCHLD.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace muster {

/// Runs `work` in a forked child. True if `work` returned in time. A child that takes longer is
/// killed, and not waited for. False, and `work` does not run, if fork() fails.
bool run_in_bounded_child(const std::function<void()>& work, std::chrono::milliseconds limit);

/// Calls `ask` in a forked child, and returns its answer, at most 4 MiB of it. No value if the
/// child does not end in time: it is then killed, and not waited for. If fork() fails, the caller's
/// own process calls `ask`.
std::optional<std::string> answer_in_time(const std::function<std::string()>& ask,
                                          std::chrono::milliseconds limit);

/// Writes `text` to stderr in a child process and waits for it for at most 2 s. A reader of stderr
/// that does not read then costs the text, but does not stop the caller.
void print_to_stderr(const std::string& text);

}  // namespace muster
