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
#include <tuple>
#include <vector>

#include "agent/core/worker_lines.h"
#include "agent/core/worker_notice.h"
#include "worker_sdk/src/notice_lines.h"

namespace {

using namespace muster;

constexpr int kWorkers = 3;

struct Heard {
  std::vector<WorkerMessage> messages;
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

using Notice = std::optional<AgentNotice>;

bool are_equal(const Notice& a, const Notice& b) {
  const auto facts = [](const AgentNotice& notice) {
    return std::tie(notice.deadline, notice.reason, notice.doomed, notice.doomed_ranks,
                    notice.follow, notice.id);
  };
  return a && b ? facts(*a) == facts(*b) : !a && !b;
}

/// What the SDK knows at the end, or before the first line that is too long.
Notice notice_in(std::string_view text, std::size_t piece, bool& whole) {
  NoticeLines lines;
  whole = true;
  while (whole && !text.empty()) {
    whole = lines.add(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
  }
  return lines.notice();
}

void check_sdk(std::string_view text) {
  bool whole = false, whole_in_pieces = false;
  const Notice notice = notice_in(text, text.size(), whole);
  if (!are_equal(notice, notice_in(text, 7, whole_in_pieces)) || whole != whole_in_pieces)
    std::abort();
  if (!notice) return;
  if (notice->deadline.time_since_epoch().count() < 0) std::abort();
  for (const auto& [first, last] : notice->doomed_ranks)
    if (first < 0 || last < first) std::abort();
}

/// Each notice of the agent is understood, to the millisecond.
void check_notice(std::string_view text) {
  std::uint64_t number = 0;
  for (const char c : text.substr(0, 8))
    number = number << 8 | static_cast<unsigned char>(c);
  const Instant then(std::chrono::milliseconds(number % 1'000'000'000'000));
  const int rank = static_cast<int>(number % 1000);
  WorkerNotice sent{.deadline = then,
                    .reason = std::string(text),
                    .doomed = number % 2 == 0,
                    .doomed_ranks = {{rank, rank + 1}},
                    .follow = AfterNotice::Shrink,
                    .id = static_cast<std::int64_t>(number >> 1)};
  sent.doomed_ranks.resize(text.size() % 300, {rank, rank});
  bool whole = false;
  const Notice read = notice_in(preempt_line(sent, Instant{}), 1024, whole);
  if (!read) std::abort();
  const auto off = read->deadline.time_since_epoch() - then.time_since_epoch();
  if (off > std::chrono::milliseconds(1) || off < -std::chrono::milliseconds(1)) std::abort();
  if (read->doomed != sent.doomed || read->follow != "shrink" || read->id != sent.id) std::abort();
  sent.doomed_ranks.resize(std::min(sent.doomed_ranks.size(), WorkerNotice::kMaxDoomedRanges));
  if (read->doomed_ranks != sent.doomed_ranks) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_agent(text);
  check_sdk(text);
  check_notice(text);
  return 0;
}
