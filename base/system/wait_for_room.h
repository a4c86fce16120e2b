// Waits until a descriptor can be written without blocking. For signal handlers, too.
#pragma once

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <string_view>

namespace muster {

/// Waits at most `within_ms` milliseconds; -1: without a limit. True if the descriptor has room, or
/// if a write would fail at once. Then a pipe or terminal takes at least PIPE_BUF bytes.
inline bool wait_for_room(int fd, int within_ms) {
  pollfd room{fd, POLLOUT, 0};
  return ::poll(&room, 1, within_ms) == 1;
}

/// Writes the last words of this process to stderr, at most PIPE_BUF bytes, if stderr has room
/// within `within_ms` milliseconds: its reader may be stuck.
inline void write_last_words(std::string_view text, int within_ms) {
  text = text.substr(0, PIPE_BUF);
  if (wait_for_room(STDERR_FILENO, within_ms)) [[maybe_unused]]
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace muster
