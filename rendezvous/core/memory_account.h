// How much memory a server holds for its clients, and how much it has allocated for them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

/// The blocks of bytes of one server. It outlives all of them.
struct MemoryAccount {
  /// What malloc needs for a block besides the block itself, rounded up.
  static constexpr std::size_t kBlockBytes = 16;

  std::size_t blocks = 0;       // All blocks, each counted once, however many hold it.
  std::size_t kept = 0;         // Those of them that the store, its runs and its inputs hold.
  std::uint64_t allocated = 0;  // Bytes of all blocks ever allocated: a measure of work.

  /// Blocks that only unread replies hold: values that were replaced, removed or popped.
  std::size_t only_unread() const { return blocks > kept ? blocks - kept : 0; }
};

}  // namespace muster
