// The memory that a server holds for its clients, and the memory that it has allocated for them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

/// Counts the blocks of bytes of one server. It must outlive all of them.
struct MemoryAccount {
  /// malloc's own memory for each block, rounded up.
  static constexpr std::size_t kBlockBytes = 16;

  std::size_t blocks = 0;       // Bytes of all blocks; a shared block counts once.
  std::size_t kept = 0;         // Bytes of blocks that the store, its runs and its inputs hold.
  std::uint64_t allocated = 0;  // Bytes of all blocks ever allocated: a measure of work.

  /// Bytes that only unread replies hold: values that were replaced, removed or popped.
  std::size_t only_unread() const { return blocks > kept ? blocks - kept : 0; }
};

}  // namespace muster
