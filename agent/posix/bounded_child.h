// Work that may hang, such as writing to a file server that is gone: done by a child process, for
// which the caller waits for a bounded time.
#pragma once

#include <chrono>
#include <functional>

namespace muster {

/// Runs `work` in a forked child; true if it returned in time. A child that takes longer is killed,
/// and left behind if not even that ends it. Without a process for it, nothing is done.
bool run_in_bounded_child(const std::function<void()>& work, std::chrono::milliseconds limit);

}  // namespace muster
