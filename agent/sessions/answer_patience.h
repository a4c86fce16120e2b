// How long a node waits for the answer of a host whose machine has accepted its connection.
//
// Pure. After a restart all nodes of all runs come back at once, and a host with TLS needs a while
// for their handshakes. A node that gave up each try after the same short time would come back to
// the end of the queue again and again, and none would ever be served.
#pragma once

#include <algorithm>

#include "base/time.h"

namespace muster {

class AnswerPatience {
 public:
  static constexpr Duration kMax = std::chrono::seconds(30);

  explicit AnswerPatience(Duration first) : first_(first), limit_(first) {}

  /// The limit of the next try.
  Duration limit() const { return limit_; }
  /// A try has ended. `in_silence`: the host has accepted the connection and has not answered.
  void tried(bool in_silence) { limit_ = in_silence ? std::min(2 * limit_, kMax) : first_; }

 private:
  Duration first_;
  Duration limit_;
};

}  // namespace muster
