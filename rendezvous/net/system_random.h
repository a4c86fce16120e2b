// Randomness from the kernel, for names and for the seeds of generators.
//
// Not std::random_device: clang's C++ library reads /dev/urandom for it, and throws where that file
// is not there, as in a bare chroot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster {

/// How many bytes the kernel gives in one piece, whatever signals arrive (getrandom(2)).
inline constexpr std::size_t kRandomBytesMax = 256;

/// Fills up to kRandomBytesMax bytes. False if the kernel gives none: a sandbox forbids getrandom.
bool fill_random(std::span<std::uint8_t> bytes);

/// For identities that must differ between processes, and for seeds. Stops the program if the
/// kernel gives no randomness.
std::uint64_t random_number();

/// The same, for a small generator.
inline std::uint32_t random_seed() {
  return static_cast<std::uint32_t>(random_number());
}

}  // namespace muster
