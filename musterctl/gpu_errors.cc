#include "musterctl/gpu_errors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "base/take_line.h"
#include "musterctl/run_text.h"

namespace muster::ctl {
namespace {

constexpr std::string_view kMark = "NVRM: Xid (PCI:";
constexpr std::size_t kMaxLogBytes = std::size_t{64} << 20;  // The kernel's largest log has 32 MiB.

/// Returns the number at the beginning of `text` and removes it from `text`.
template <typename Number>
std::optional<Number> consume_number(std::string_view& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Returns `text` up to `mark` and removes both from `text`.
std::optional<std::string_view> consume_until(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

// Removes the process, "pid=71, name=python, " or "pid='<unknown>', name=<unknown>, ", which may no
// longer exist.
std::string_view without_process(std::string_view text) {
  for (const std::string_view field : {"pid=", "name="})
    if (text.substr(0, field.size()) == field && !consume_until(text, ", ")) return {};
  return text;
}

/// Parses a line of the log: "4,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=71, GPU has ..."
std::optional<Xid> xid_in(std::string_view line) {
  std::string_view head = line;
  const auto fields = consume_until(head, ";");
  if (!fields || !consume_until(head, kMark)) return std::nullopt;
  std::string_view numbers = *fields;
  if (!consume_until(numbers, ",") || !consume_until(numbers, ",")) return std::nullopt;
  const auto microseconds = consume_number<std::uint64_t>(numbers);
  const auto device = consume_until(head, "): ");
  const auto number = consume_number<unsigned>(head);
  if (!microseconds || !device || !number) return std::nullopt;
  if (head.substr(0, 2) == ", ") head.remove_prefix(2);
  return Xid{.device = safe(device->substr(0, kMaxXidBytes)),
             .number = *number,
             .times = 1,
             .last_seconds = static_cast<double>(*microseconds) / 1e6,
             .text = safe(without_process(head).substr(0, kMaxXidBytes))};
}

double seconds_since_start() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // The log's clock: it does not count time in suspend.
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

std::vector<Xid> xids_in(std::string_view log) {
  std::vector<Xid> xids;
  while (!log.empty()) {
    std::optional<Xid> found = xid_in(take_line(log));
    if (!found) continue;
    const auto same = std::find_if(xids.begin(), xids.end(), [&](const Xid& xid) {
      return xid.device == found->device && xid.number == found->number;
    });
    if (same != xids.end()) {
      found->times += same->times;
      *same = *std::move(found);
    } else if (xids.size() < kMaxXids) {
      xids.push_back(*std::move(found));
    }
  }
  return xids;
}

GpuErrors gpu_errors(const std::string& path) {
  GpuErrors errors{.now_seconds = seconds_since_start()};
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    errors.error = path + ": " + std::strerror(errno);
    return errors;
  }
  // Each read() returns one record. EAGAIN means the end; EPIPE means that records were overwritten
  // in the meantime.
  std::string log;
  std::array<char, 16384> record{};
  while (log.size() < kMaxLogBytes) {
    const ssize_t n = ::read(fd, record.data(), record.size());
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (n < 0 && errno != EAGAIN) errors.error = path + ": " + std::strerror(errno);
    if (n <= 0) break;
    log.append(record.data(), static_cast<std::size_t>(n));
  }
  ::close(fd);
  errors.xids = xids_in(log);
  return errors;
}

}  // namespace muster::ctl
