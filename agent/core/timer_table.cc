#include "agent/core/timer_table.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/json_integer.h"

namespace muster {
namespace {

constexpr std::size_t kMaxValues = 256;  // A request has five.
constexpr std::size_t kMaxDepth = 4;     // A request is a flat object, so 1 would suffice.
constexpr double kFarAheadS = 1e9;       // About thirty years: effectively never, without overflow.
constexpr int kLargestSignal = 64;       // Linux.

// Writes into `object`; false if the line is not a JSON object. (The function does not return a
// Result, because nlohmann::json converts implicitly from any type, errors included.)
bool parse_object(std::string_view line, nlohmann::json& object) {
  return !parse_bounded_json(line, {kMaxValues, kMaxDepth}, object) && object.is_object();
}

std::optional<int> integer(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? std::nullopt : integer_of<int>(*found);
}

TimerLineDefect missing(const char* what) {
  return {std::string("it has no ") + what};
}

}  // namespace

boost::system::result<TimerRequest, TimerLineDefect> parse_timer_request(std::string_view line) {
  nlohmann::json object;
  if (line.size() > kMaxTimerLineBytes) return TimerLineDefect{"it is too long"};
  // Spares the parser a flood of short lines that cannot be requests.
  if (!line.starts_with('{') || !parse_object(line, object))
    return TimerLineDefect{"it is no object of JSON"};
  TimerRequest request;
  const auto pid = integer(object, "pid");
  if (!pid || *pid <= 0) return missing("pid above 0");
  request.pid = *pid;
  const auto scope = object.find("scope_id");
  if (scope == object.end() || !scope->is_string()) return missing("text scope_id");
  request.scope = scope->get<std::string>();
  const auto time = object.find("expiration_time");
  if (time == object.end() || !time->is_number()) return missing("number expiration_time");
  const auto signal = integer(object, "signal");
  if (!signal || *signal > kLargestSignal) return missing("number of a signal");
  request.signal = *signal;
  if (const auto seconds = time->get<double>(); !(seconds < 0)) request.expires_at_s = seconds;
  return request;
}

std::vector<std::string> TimerLines::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::string_view part = bytes.substr(0, newline);
    bytes.remove_prefix(newline == std::string_view::npos ? bytes.size() : newline + 1);
    if (!skipping_)
      partial_line_.append(part.substr(0, kMaxTimerLineBytes + 1 - partial_line_.size()));
    const bool is_too_long = partial_line_.size() > kMaxTimerLineBytes;
    if ((newline != std::string_view::npos && !partial_line_.empty()) || is_too_long)
      lines.push_back(std::exchange(partial_line_, {}));
    skipping_ = newline == std::string_view::npos && (skipping_ || is_too_long);
  }
  return lines;
}

bool TimerTable::apply(const TimerRequest& request, Instant now, double wall_now_s) {
  const std::pair key(request.pid, request.scope);
  if (!request.expires_at_s) {
    timers_.erase(key);
    return true;
  }
  if (timers_.size() >= kMaxTimers && !timers_.contains(key)) return false;
  advance(now);
  const double left_s = std::clamp(*request.expires_at_s - wall_now_s, 0.0, kFarAheadS);
  timers_[key] = {
      counted_ + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(left_s)),
      request.signal};
  return true;
}

bool TimerTable::may_make_room(Instant now) {
  if (room_made_ && now - *room_made_ < kCheckInterval) return false;
  room_made_ = now;
  return true;
}

void TimerTable::advance(Instant now) {
  counted_ += time_.advance(now, kCheckInterval);
}

std::optional<Instant> TimerTable::next_deadline() const {
  const std::optional<Instant> last = time_.last();
  if (timers_.empty() || !last) return std::nullopt;
  Duration left = kCheckInterval;
  for (const auto& [key, timer] : timers_)
    left = std::min(left, timer.deadline - counted_);
  return *last + left;
}

std::vector<ExpiredTimer> TimerTable::expire(Instant now) {
  advance(now);
  std::vector<ExpiredTimer> expired;
  // The keys are sorted by pid, so the timers of one process are neighbours.
  for (auto it = timers_.begin(); it != timers_.end();) {
    const int pid = it->first.first;
    auto first = timers_.end();
    for (; it != timers_.end() && it->first.first == pid; ++it) {
      if (it->second.deadline > counted_) continue;
      const auto rank = [](const Timer& timer) {
        return std::pair(timer.signal <= 0, timer.deadline);
      };
      if (first == timers_.end() || rank(it->second) < rank(first->second)) first = it;
    }
    if (first != timers_.end()) expired.push_back({pid, first->first.second, first->second.signal});
  }
  for (const ExpiredTimer& timer : expired)
    remove(timer.pid);
  return expired;
}

void TimerTable::remove(int pid) {
  const auto begin = timers_.lower_bound({pid, ""});
  auto end = begin;
  while (end != timers_.end() && end->first.first == pid)
    ++end;
  timers_.erase(begin, end);
}

void TimerTable::clear() {
  timers_.clear();
}

std::vector<int> TimerTable::pids() const {
  std::vector<int> pids;
  for (const auto& [key, timer] : timers_)
    if (pids.empty() || pids.back() != key.first) pids.push_back(key.first);
  return pids;
}

}  // namespace muster
