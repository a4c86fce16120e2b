// muster's own lines on stderr: spdlog's sink, which never waits for the console.
#pragma once

#include <memory>

#include "agent/logs/log_mailbox.h"

namespace muster {

/// torchrun's form: "W1121 09:08:26.123456 4711 muster] text".
inline constexpr const char* kOwnLinePattern = "%L%m%d %H:%M:%S.%f %P muster] %v";

class OwnLinesSink;

/// Brings what any thread of the agent logs to the log thread, which owns the console.
class OwnLines {
 public:
  /// Replaces the default logger's sink. Called before the agent starts other threads; later calls
  /// change the mailbox alone, and may come at any time.
  void route_to(std::shared_ptr<LogMailbox> mailbox);

 private:
  std::shared_ptr<OwnLinesSink> sink_;
};

}  // namespace muster
