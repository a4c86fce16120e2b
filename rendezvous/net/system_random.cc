#include "rendezvous/net/system_random.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>

#include "rendezvous/core/check.h"

namespace muster {

bool fill_random(std::span<std::uint8_t> bytes) {
  // The system call is made by number: glibc has a function for it only since 2.25, but the
  // packages support glibc 2.17.
  return bytes.size() <= kRandomBytesMax && ::syscall(SYS_getrandom, bytes.data(), bytes.size(),
                                                      0) == static_cast<ssize_t>(bytes.size());
}

std::uint64_t random_number() {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  MUSTER_CHECK(fill_random(bytes));
  return std::bit_cast<std::uint64_t>(bytes);
}

}  // namespace muster
