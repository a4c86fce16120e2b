// Parses the agent's notices on the worker channel: the deadline by which this process must end.
//
// This class has no socket: bytes go in, a deadline comes out. docs/worker_channel.md describes the
// protocol.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

class NoticeLines {
 public:
  using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, as in the agent.
  static constexpr std::size_t kMaxLineBytes = 4096;

  /// Returns false if a line is too long. The channel is then not usable any more.
  bool add(std::string_view bytes);
  /// The deadline of the last notice.
  std::optional<Clock::time_point> deadline() const { return deadline_; }

 private:
  void handle_line(std::string_view line);

  std::string buffer_;  // The begin of an incomplete line.
  std::optional<Clock::time_point> deadline_;
};

}  // namespace muster
