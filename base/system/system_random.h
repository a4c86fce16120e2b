// Random numbers from the kernel, for names and for the seeds of generators.
//
// std::random_device is not used: clang's C++ library reads /dev/urandom for it, and throws if that
// file does not exist, as in a bare chroot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster {

/// The number of bytes that getrandom(2) always returns in one call, even if signals arrive.
inline constexpr std::size_t kRandomBytesMax = 256;

/// The sentence for a program that cannot go on without random numbers.
inline constexpr std::string_view kNoRandomness =
    "no random numbers: this sandbox refuses getrandom, and /dev/urandom cannot be read";

/// Fills up to kRandomBytesMax bytes, from /dev/urandom if a sandbox refuses getrandom. Returns
/// false if neither gives any.
bool fill_random(std::span<std::uint8_t> bytes);

/// A random number for seeds, and for identities that must differ between processes. Throws a
/// std::runtime_error if the kernel gives no random numbers.
std::uint64_t random_number();

/// A random text of 32 hexadecimal digits, for such identities. Throws as random_number() does.
std::string random_id();

/// A random number with 32 bits, for the seed of a small generator.
inline std::uint32_t random_seed() {
  return static_cast<std::uint32_t>(random_number());
}

}  // namespace muster
