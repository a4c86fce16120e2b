// The spdlog sink for muster's own lines on stderr. It never waits for the console.
#pragma once

#include <memory>

#include "agent/logs/log_mailbox.h"

namespace muster {

/// torchrun's form: "W1121 09:08:26.123456 4711 muster] text".
inline constexpr const char* kOwnLinePattern = "%L%m%d %H:%M:%S.%f %P muster] %v";

class OwnLinesSink;

/// Sends the log lines of every thread of the agent to the log thread, which owns the console.
class OwnLines {
 public:
  /// Replaces the default logger's sink. The first call comes before the agent starts other
  /// threads. Later calls only change the mailbox, and may come at any time.
  void route_to(std::shared_ptr<LogMailbox> mailbox);

 private:
  std::shared_ptr<OwnLinesSink> sink_;
};

}  // namespace muster
