#include "rendezvous/node/host_link.h"

#include <algorithm>

namespace muster {
namespace {

constexpr int kKeepAlivesPerLease = 3;
// A host with a shorter lease would make this node busy with keep-alives.
constexpr Duration kShortestLease = std::chrono::milliseconds(100);
constexpr Duration kLongestLease = std::chrono::hours(24);
constexpr Duration kMaxPause = std::chrono::seconds(2);
constexpr int kMaxToldErrors = 4;

}  // namespace

// The host's lease decides when a node is lost, whatever --rdzv-conf lease of this node says. So it
// also decides when this node stops its workers: earlier would be for nothing, and later would be
// beside the next round.
void HostLink::connected(const NativeWelcome& welcome, bool proxied, Instant now) {
  connecting_ = false;
  up_ = true;
  welcome_ = welcome;
  proxied_ = proxied;
  heard_ = now;
  refused_.reset();
  answered_ = false;
  lease_ = std::clamp(welcome_.lease.value_or(options_.lease), kShortestLease, kLongestLease);
  keep_alive_at_ = now + lease_ / kKeepAlivesPerLease;
}

void HostLink::answered() {
  answered_ = true;
  pause_ = kPauseFirst;
}

bool HostLink::lost(const std::string& why, Instant since, Instant now) {
  up_ = false;
  if (answered_)
    next_try_ = now;
  else
    pause_before_next_try(now);
  last_error_ = why;
  found_ = HostFound::Nobody;
  if (lost_since_) return false;
  told_errors_ = 0;
  lost_since_ = since;
  lost_why_ = why;
  return true;
}

void HostLink::try_failed(const std::string& text, HostFound found, Instant now) {
  connecting_ = false;
  last_error_ = text;
  found_ = found;
  pause_before_next_try(now);
}

void HostLink::refused(Instant now) {
  if (now - evidence() < lease_) refused_ = now;
}

void HostLink::forgive(Duration length, Instant now) {
  if (lost_since_) lost_since_ = later(*lost_since_, length);
  if (up_) heard_ = now;
  if (refused_) refused_ = now;
}

std::optional<Instant> HostLink::refused_lately(Instant now) const {
  return refused_ && now - *refused_ < lease_ ? refused_ : std::nullopt;
}

bool HostLink::take_news(const std::string& text) {
  if (text.empty() || text == last_error_ || told_errors_ >= kMaxToldErrors) return false;
  ++told_errors_;
  return true;
}

bool HostLink::take_keep_alive(Instant now) {
  if (!up_ || now < keep_alive_at_) return false;
  keep_alive_at_ = now + lease_ / kKeepAlivesPerLease;
  return true;
}

bool HostLink::take_connect(Instant now) {
  if (up_ || connecting_ || !next_try_ || now < *next_try_) return false;
  connecting_ = true;
  return true;
}

std::optional<Instant> HostLink::next_deadline(Instant now) const {
  if (up_ && welcome_.resumes) return std::min(keep_alive_at_, heard_ + lease_);
  if (up_) return keep_alive_at_;
  const Instant look_again = now + lease_ / kKeepAlivesPerLease;
  return !connecting_ && next_try_ ? std::min(*next_try_, look_again) : look_again;
}

std::string HostLink::host_that(std::string_view nobody) const {
  std::string text = "the rendezvous at " + options_.host_text + " ";
  if (!up_ && found_ == HostFound::Refusal) return text + "does not take this node back";
  if (!up_ && found_ == HostFound::NoWay) return text + "cannot be reached from here";
  return text.append(nobody);
}

std::string HostLink::latest_try() const {
  return up_ || last_error_.empty() ? std::string() : " (the latest attempt: " + last_error_ + ")";
}

/// The next try comes after a pause, and later ones after longer pauses.
void HostLink::pause_before_next_try(Instant now) {
  const Duration most = std::min(kMaxPause, lease_ / 2);
  next_try_ = now + jittered(std::min(pause_, most));
  pause_ = std::min(2 * pause_, most);
}

/// A random pause between half of `most` and `most`, so that nodes which lost the host together do
/// not reconnect at the same instant.
Duration HostLink::jittered(Duration most) {
  options_.random += 0x9e3779b97f4a7c15ULL;  // splitmix64
  std::uint64_t bits = options_.random;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  bits ^= bits >> 31;
  const Duration::rep half = most.count() / 2;
  if (half <= 0) return most;
  return Duration(half + static_cast<Duration::rep>(bits % static_cast<std::uint64_t>(half)));
}

}  // namespace muster
