// Who made a temporary directory, in its name: so that a later run can tell that nobody is there
// any more, and that it was on this machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

struct RunOwner {
  std::uint32_t place = 0;  // 25 bits of a hash: this boot of this machine, this set of pids.
  std::int32_t pid = 0;
  std::uint64_t start = 0;  // When that process began, in the kernel's ticks: 35 bits.
  bool operator==(const RunOwner&) const = default;
};

inline constexpr std::size_t kRunOwnerLetters = 17;

/// The directory's name: short, as the path of a socket in it may have 107 bytes only. `suffix`:
/// letters that nobody can guess.
std::string run_owner_name(const RunOwner& owner, std::string_view suffix);

/// Nothing if run_owner_name() made no such name.
std::optional<RunOwner> read_run_owner_name(std::string_view name);

/// The hash of what tells places apart.
std::uint32_t run_place(std::string_view text);

}  // namespace muster
