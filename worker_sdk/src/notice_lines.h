// What the agent says on the worker channel: until when this process should have ended.
//
// No socket here: bytes go in, a deadline comes out. The protocol is in docs/worker_channel.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

class NoticeLines {
 public:
  using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, as the agent's.
  static constexpr std::size_t kMaxLineBytes = 4096;

  /// False if a line is too long: the channel is of no use any more.
  bool add(std::string_view bytes);
  /// What the last notice has said.
  std::optional<Clock::time_point> deadline() const { return deadline_; }

 private:
  void take_line(std::string_view line);

  std::string buffer_;  // Less than one line.
  std::optional<Clock::time_point> deadline_;
};

}  // namespace muster
