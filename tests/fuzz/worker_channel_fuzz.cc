// libFuzzer: both sides of the worker channel: how the agent reads the lines of workers, and how
// the SDK in a worker reads the lines of an agent.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/worker_lines.h"
#include "worker_sdk/src/notice_lines.h"

namespace {

using namespace muster;

constexpr int kWorkers = 3;

struct Heard {
  std::vector<WorkerProgress> messages;
  std::string why;
  std::optional<LocalRank> rank, promised;
  bool operator==(const Heard&) const = default;
};

Heard hear(std::string_view text, std::size_t piece) {
  WorkerLines lines(kWorkers);
  Heard heard;
  while (!text.empty() && lines.error().empty()) {
    const std::string_view head = text.substr(0, piece);
    text.remove_prefix(head.size());
    lines.add(head);
    while (auto message = lines.next())
      heard.messages.push_back(*message);
  }
  heard.why = lines.error();
  heard.rank = lines.rank();
  heard.promised = lines.ends_itself();
  return heard;
}

void check_agent(std::string_view text) {
  const Heard heard = hear(text, text.size());
  if (heard != hear(text, 7) || heard != hear(text, 1024)) std::abort();
  if (!heard.messages.empty() && !heard.rank) std::abort();
  if (heard.rank && (heard.rank->value < 0 || heard.rank->value >= kWorkers)) std::abort();
  if (heard.promised && heard.promised != heard.rank) std::abort();
}

using Deadline = std::optional<NoticeLines::Clock::time_point>;

/// What the SDK knows at the end, or before the first line that is too long.
Deadline deadline_in(std::string_view text, std::size_t piece, bool& whole) {
  NoticeLines lines;
  whole = true;
  while (whole && !text.empty()) {
    whole = lines.add(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
  }
  return lines.deadline();
}

void check_sdk(std::string_view text) {
  bool whole = false, whole_in_pieces = false;
  const Deadline deadline = deadline_in(text, text.size(), whole);
  if (deadline != deadline_in(text, 7, whole_in_pieces) || whole != whole_in_pieces) std::abort();
  if (deadline && deadline->time_since_epoch().count() < 0) std::abort();
}

/// Each notice of the agent is understood, to the millisecond.
void check_notice(std::string_view text) {
  std::uint64_t number = 0;
  for (const char c : text.substr(0, 8))
    number = number << 8 | static_cast<unsigned char>(c);
  const Instant then(std::chrono::milliseconds(number % 1'000'000'000'000));
  bool whole = false;
  const Deadline read = deadline_in(preempt_line(then, Instant{}), 1024, whole);
  if (!read) std::abort();
  const auto off = read->time_since_epoch() - then.time_since_epoch();
  if (off > std::chrono::milliseconds(1) || off < -std::chrono::milliseconds(1)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_agent(text);
  check_sdk(text);
  check_notice(text);
  return 0;
}
