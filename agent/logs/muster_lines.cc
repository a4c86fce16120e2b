#include "agent/logs/muster_lines.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace muster {
namespace {

// How long the lines are still held after stderr has room again.
constexpr Duration kHoldMore = std::chrono::milliseconds(100);

}  // namespace

void MusterLines::print(OwnText own) {
  if (!held_until_) return print_now(own);
  if (held_bytes_ + own.text.size() > kMaxBytes && own.keep == Keep::IfThereIsRoom) {
    ++dropped_lines_;
    return;
  }
  held_bytes_ += own.text.size();
  held_.push_back(std::move(own));
}

void MusterLines::print_now(const OwnText& own) {
  const auto& [stream, text, keep] = own;
  LogOutput& output = consoles_.of(stream);
  if (output.console.is_closed()) return;
  const bool is_full = output.console.unwritten_bytes() > kMaxUnwrittenBytes + kMaxBytes;
  if (is_full && keep == Keep::IfThereIsRoom) {
    ++dropped_lines_;
    return;
  }
  const std::size_t lines = stream == LogStream::Err ? std::exchange(dropped_lines_, 0) : 0;
  if (lines > 0)
    output.merger.add_own("[muster: " + std::to_string(lines) +
                              " of its own lines are missing here: nobody read them in time]\n",
                          output.console.buffer());
  output.merger.add_own(text, output.console.buffer());
}

void MusterLines::hold_until(Instant deadline) {
  held_until_ = held_until_ ? std::max(*held_until_, deadline) : deadline;
}

bool MusterLines::must_hold(Instant now) {
  if (!held_until_) return false;
  Instant& deadline = *held_until_;
  if (!consoles_.of(LogStream::Err).has_room()) deadline = std::max(deadline, now + kHoldMore);
  return now < deadline;
}

void MusterLines::release() {
  held_until_.reset();
  for (const OwnText& own : std::exchange(held_, {}))
    print_now(own);
  held_bytes_ = 0;
}

void MusterLines::print_losses() {
  const std::vector<std::string> losses = consoles_.take_losses();
  for (const std::string& line : losses)
    print_now({LogStream::Err, line, Keep::IfThereIsRoom});
  const bool any = !losses.empty() || dropped_lines_ > 0;
  if (dropped_lines_ > 0) print_now({LogStream::Err, {}, Keep::Always});  // Says how many.
  if (any) consoles_.of(LogStream::Err).console.give_up();
}

}  // namespace muster
