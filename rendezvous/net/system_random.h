// Random numbers from the kernel, for names and for the seeds of generators.
//
// std::random_device is not used: clang's C++ library reads /dev/urandom for it, and throws if that
// file does not exist, as in a bare chroot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster {

/// The number of bytes that getrandom(2) always returns in one call, even if signals arrive.
inline constexpr std::size_t kRandomBytesMax = 256;

/// Fills up to kRandomBytesMax bytes. Returns false if the kernel gives none, for example because a
/// sandbox forbids getrandom.
bool fill_random(std::span<std::uint8_t> bytes);

/// A random number for seeds, and for identities that must differ between processes. Stops the
/// program if the kernel gives no random numbers.
std::uint64_t random_number();

/// A random number with 32 bits, for the seed of a small generator.
inline std::uint32_t random_seed() {
  return static_cast<std::uint32_t>(random_number());
}

}  // namespace muster
