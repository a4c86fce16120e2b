#include "agent/core/earlier_attempts.h"

#include <utility>

#include "agent/core/report_text.h"
#include "agent/core/signal_name.h"
#include "agent/core/tail_ring.h"
#include "base/cut_text.h"

namespace muster {
namespace {

std::string attempt_line(const AttemptCause& cause) {
  std::string text = "  attempt " + std::to_string(cause.attempt) + ": rank " +
                     std::to_string(cause.end.rank.value) +
                     " (local_rank: " + std::to_string(cause.end.local_rank.value) +
                     "), exitcode: " + std::to_string(cause.end.exit.code());
  const WorkerExit& exit = cause.end.exit;
  const std::string signal = exit.killed ? signal_name(exit.status) : "";
  if (!signal.empty()) text += " (" + signal + ")";
  if (!cause.text.empty()) text += ": " + cause.text;
  return text + "\n";
}

}  // namespace

std::string cause_line(std::string_view whole) {
  const std::string without = without_frames(whole);
  std::string_view text = without;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r'))
    text.remove_suffix(1);
  const std::size_t newline = text.rfind('\n');
  if (newline != std::string_view::npos) text.remove_prefix(newline + 1);
  std::string line = presentable(text);  // Begins with a newline.
  line.erase(0, line.find_first_not_of("\n "));
  cut_text(line, kMaxCauseBytes);
  return line;
}

void EarlierAttempts::add(AttemptCause cause) {
  kept_.push_back(std::move(cause));
  if (kept_.size() <= kFirstKept + kLastKept) return;
  kept_.erase(kept_.begin() + kFirstKept);
  ++left_out_;
}

std::string EarlierAttempts::text() const {
  if (empty()) return "";
  std::string text = "Earlier attempts (the first cause of each):\n";
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    if (i == kFirstKept && left_out_ > 0)
      text += "  (and " + std::to_string(left_out_) + " more)\n";
    text += attempt_line(kept_[i]);
  }
  text.pop_back();
  return text;
}

}  // namespace muster
