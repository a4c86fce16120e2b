#include "agent/core/connecting_sockets.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/whole_number.h"

namespace muster {
namespace {

constexpr std::string_view kSynSent = "02";  // include/net/tcp_states.h of Linux
constexpr std::size_t kStateField = 3;
constexpr std::size_t kRemoteField = 2;
constexpr std::size_t kInodeField = 9;

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (fields.size() <= kInodeField) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) break;
    fields.push_back(line.substr(0, line.find(' ')));
    line.remove_prefix(fields.back().size());
  }
  return fields;
}

std::optional<std::uint32_t> hex_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The kernel prints each word of an address as a number of the machine, which is little-endian.
std::string dotted(std::uint32_t word) {
  char text[16];
  std::snprintf(text, sizeof text, "%u.%u.%u.%u", word & 0xff, (word >> 8) & 0xff,
                (word >> 16) & 0xff, word >> 24);
  return text;
}

std::string ipv6_text(const std::array<std::uint32_t, 4>& words) {
  constexpr std::uint32_t kMapped = 0xffff0000;  // ::ffff:0:0/96
  if (words[0] == 0 && words[1] == 0 && words[2] == kMapped) return dotted(words[3]);
  std::array<unsigned, 8> groups{};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::uint32_t half = (words[i / 2] >> (16 * (i % 2))) & 0xffff;
    groups[i] = ((half & 0xff) << 8) | (half >> 8);
  }
  std::size_t begin = 0, length = 0;  // The longest run of zeros.
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::size_t end = i;
    while (end < groups.size() && groups[end] == 0)
      ++end;
    if (end - i > length) begin = i, length = end - i;
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (length > 1 && i == begin) {
      text += "::";
      i += length - 1;
      continue;
    }
    char group[8];
    std::snprintf(group, sizeof group, "%x", groups[i]);
    text.append(text.empty() || text.ends_with(':') ? "" : ":").append(group);
  }
  return "[" + text + "]";
}

/// "0100007F:7530", or with 32 digits in front of the colon.
std::optional<std::string> place_of(std::string_view field) {
  const auto colon = field.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < colon / 8; ++i) {
    const auto word = hex_number(field.substr(8 * i, 8));
    if (!word) return std::nullopt;
    words[i] = *word;
  }
  const auto port = hex_number(field.substr(colon + 1));
  if (!port) return std::nullopt;
  const std::string host = colon == 8 ? dotted(words[0]) : ipv6_text(words);
  return host + ":" + std::to_string(*port);
}

}  // namespace

std::vector<ConnectingSocket> connecting_sockets(std::string_view table) {
  std::vector<ConnectingSocket> found;
  while (!table.empty() && found.size() < kMaxConnecting) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    const auto fields = fields_of(table.substr(0, end));
    table.remove_prefix(std::min(end + 1, table.size()));
    if (fields.size() <= kInodeField || fields[kStateField] != kSynSent) continue;
    auto remote = place_of(fields[kRemoteField]);
    const auto inode = whole_number<std::uint64_t>(fields[kInodeField]);
    if (remote && inode) found.push_back({*std::move(remote), *inode});
  }
  return found;
}

UnansweredDetector::Seen UnansweredDetector::observe(Seen seen) {
  Seen fresh;
  bool must_confirm = false;
  for (const auto& one : seen) {
    if (reported_.contains(one) || reported_.size() >= kMaxReported) continue;
    if (!last_.contains(one)) {
      must_confirm = true;
      continue;
    }
    fresh.insert(one);
    reported_.insert(one);
  }
  last_ = std::move(seen);
  if (!must_confirm) longer_ = std::min(2 * longer_, kLongest);
  pause_ = must_confirm ? kConfirm : longer_;
  return fresh;
}

}  // namespace muster
