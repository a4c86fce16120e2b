#include "agent/posix/report_queue.h"

#include "base/system/clock.h"

namespace muster {

void ReportQueue::add_signal(int number) {
  for (ShimReport& waiting : waiting_) {
    if (waiting.kind != ShimReport::Kind::SignalReceived || waiting.status != number) continue;
    ++waiting.count;
    return;
  }
  add({.kind = ShimReport::Kind::SignalReceived,
       .status = number,
       .count = 1,
       .wall_ms = wall_ms()});
}

boost::system::error_code ReportQueue::send_to(int socket) {
  while (!waiting_.empty()) {
    if (const auto error = send_message(socket, waiting_.front())) return error;
    waiting_.pop_front();
  }
  return {};
}

}  // namespace muster
