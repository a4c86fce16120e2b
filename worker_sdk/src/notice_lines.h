// Parses the agent's notices on the worker channel: until when, and why, this process must end.
//
// This class has no socket: bytes go in, a notice comes out. docs/worker_channel.md describes the
// protocol.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "muster/agent.h"

namespace muster {

class NoticeLines {
 public:
  using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, as in the agent.
  static constexpr std::size_t kMaxLineBytes = 4096;

  /// Returns false if a line is too long. The channel is then not usable any more.
  bool add(std::string_view bytes);
  /// The last notice. A line that is no JSON object, or lacks a deadline, is skipped.
  const std::optional<AgentNotice>& notice() const { return notice_; }

 private:
  std::string buffer_;  // The begin of an incomplete line.
  std::optional<AgentNotice> notice_;
};

}  // namespace muster
