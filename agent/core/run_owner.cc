#include "agent/core/run_owner.h"

namespace muster {
namespace {

constexpr std::string_view kPrefix = "muster_";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";  // 5 bits each.
constexpr int kPlaceLetters = 5;
constexpr int kPidLetters = 5;
constexpr int kStartLetters = 7;
static_assert(kPlaceLetters + kPidLetters + kStartLetters == kRunOwnerLetters);

void append(std::string& text, std::uint64_t number, int letters) {
  for (int i = letters - 1; i >= 0; --i)
    text += kLetters[number >> (5 * i) & 31];
}

std::optional<std::uint64_t> take(std::string_view& text, int letters) {
  std::uint64_t number = 0;
  for (int i = 0; i < letters; ++i) {
    const std::size_t digit = kLetters.find(text.front());
    if (digit == std::string_view::npos) return std::nullopt;
    number = number << 5 | digit;
    text.remove_prefix(1);
  }
  return number;
}

}  // namespace

std::string run_owner_name(const RunOwner& owner, std::string_view suffix) {
  std::string name(kPrefix);
  append(name, owner.place, kPlaceLetters);
  append(name, static_cast<std::uint64_t>(owner.pid), kPidLetters);
  append(name, owner.start, kStartLetters);
  return name.append(suffix);
}

std::optional<RunOwner> read_run_owner_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  // Longer than the eight letters that mkdtemp's users and an earlier muster have there.
  if (name.size() <= kRunOwnerLetters) return std::nullopt;
  const auto place = take(name, kPlaceLetters);
  const auto pid = take(name, kPidLetters);
  const auto start = take(name, kStartLetters);
  if (!place || !pid || !start) return std::nullopt;
  return RunOwner{static_cast<std::uint32_t>(*place), static_cast<std::int32_t>(*pid), *start};
}

// FNV-1a.
std::uint32_t run_place(std::string_view text) {
  std::uint32_t hash = 2166136261;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return (hash ^ hash >> 25) & ((1U << 25) - 1);
}

}  // namespace muster
