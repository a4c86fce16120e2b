#include "base/system/system_random.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <stdexcept>
#include <string>

#include "base/hex.h"
#include "base/system/owned_fd.h"

namespace muster {

namespace {

/// For a seccomp profile that refuses getrandom(), and before Linux 3.17.
bool fill_from_device(std::span<std::uint8_t> bytes) {
  const OwnedFd device(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
  return device.is_open() &&
         ::read(device.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

bool fill_random(std::span<std::uint8_t> bytes) {
  if (bytes.size() > kRandomBytesMax) return false;
  // The system call is made by number: glibc has a function for it only since 2.25, but the
  // packages support glibc 2.17.
  const long size = ::syscall(SYS_getrandom, bytes.data(), bytes.size(), 0);
  return size == static_cast<long>(bytes.size()) || fill_from_device(bytes);
}

std::uint64_t random_number() {
  std::array<std::uint8_t, sizeof(std::uint64_t)> bytes{};
  if (!fill_random(bytes)) throw std::runtime_error(std::string(kNoRandomness));
  return std::bit_cast<std::uint64_t>(bytes);
}

std::string random_id() {
  std::string bytes;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t number = random_number();
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  return to_hex(bytes);
}

}  // namespace muster
