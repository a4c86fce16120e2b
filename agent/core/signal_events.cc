#include "agent/core/signal_events.h"

#include <csignal>

namespace muster {
namespace {

// The terminal driver sends these signals only when a key is pressed.
bool is_key(const EndSignal& signal) {
  return signal.from_kernel && (signal.number == SIGINT || signal.number == SIGQUIT);
}

}  // namespace

bool SignalEvents::begins_event(const EndSignal& signal, Instant now) {
  const bool repeats_key = is_key(signal) && keys_.contains(signal.number);
  const bool hangs_up_again =
      signal.number == SIGHUP && hang_up_ && (signal.from_kernel || hang_up_->from_kernel);
  const bool is_late = now - began_ >= kEventWindow && !hangs_up_again;
  const bool is_new = count_ == 0 || is_late || repeats_key;
  if (signal.number == SIGHUP) hang_up_ = hangs_up_again ? std::nullopt : std::optional(signal);
  if (is_new) {
    ++count_;
    began_ = now;
    keys_.clear();
  }
  if (is_key(signal)) keys_.insert(signal.number);
  return is_new;
}

}  // namespace muster
