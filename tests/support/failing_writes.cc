// Makes writes fail at random, as on a broken or full disk. Tests preload this library into a
// program that they start; docs/testing.md says how.
//
// A write or a sync of a file whose path contains FAILING_WRITES_PATH fails with a chance of
// FAILING_WRITES in 100,000, with EIO or ENOSPC. Half of the failing pwrites first write a part of
// the bytes. FAILING_WRITES_SEED selects another random sequence. FAILING_WRITES_ERRNO is the
// number of the one error to use. FAILING_WRITES_WHILE names a file: nothing fails while it does
// not exist. Without FAILING_WRITES nothing fails.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Does not use <random>: the functions below may be called before C++ objects are initialized.
std::uint64_t next_random() {
  static std::atomic<std::uint64_t> state{setting("FAILING_WRITES_SEED", 1)};
  std::uint64_t z = state.fetch_add(0x9e3779b97f4a7c15U) + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

bool is_meant(int fd) {
  static const char* const part = std::getenv("FAILING_WRITES_PATH");
  if (part == nullptr) return false;
  std::array<char, 64> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  return ::readlink(link.data(), path.data(), path.size() - 1) > 0 &&
         std::strstr(path.data(), part) != nullptr;
}

bool is_time() {
  static const char* const file = std::getenv("FAILING_WRITES_WHILE");
  return file == nullptr || ::access(file, F_OK) == 0;
}

// Returns a random number that is not zero if the call must fail; else 0.
std::uint64_t failure(int fd) {
  static const std::uint64_t chance = setting("FAILING_WRITES", 0);
  if (chance == 0 || !is_meant(fd) || !is_time()) return 0;
  const std::uint64_t random = next_random();
  return random % 100'000 < chance ? random | 1U : 0;
}

template <typename Function>
Function* real(Function* /*function*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// Sets errno and returns -1.
int fail(std::uint64_t random) {
  static const auto error = static_cast<int>(setting("FAILING_WRITES_ERRNO", 0));
  const int random_error = (random >> 40U) % 2 == 0 ? EIO : ENOSPC;
  errno = error != 0 ? error : random_error;
  return -1;
}

ssize_t failing_pwrite(std::uint64_t random, int fd, const void* from, size_t size, off_t at) {
  // Half of the calls write a part of the bytes, as a disk that breaks during a write.
  if ((random >> 41U) % 2 == 0 && size > 1)
    (void)!real(&pwrite, "pwrite")(fd, from, (random >> 20U) % size, at);
  return fail(random);
}

}  // namespace

extern "C" {

ssize_t pwrite(int fd, const void* from, size_t size, off_t at) {
  if (const std::uint64_t random = failure(fd)) return failing_pwrite(random, fd, from, size, at);
  return real(&pwrite, "pwrite")(fd, from, size, at);
}
ssize_t pwrite64(int fd, const void* from, size_t size, off64_t at) {
  if (const std::uint64_t random = failure(fd)) return failing_pwrite(random, fd, from, size, at);
  return real(&pwrite64, "pwrite64")(fd, from, size, at);
}
ssize_t write(int fd, const void* from, size_t size) {
  if (const std::uint64_t random = failure(fd)) return fail(random);
  return real(&write, "write")(fd, from, size);
}
int fsync(int fd) {
  if (const std::uint64_t random = failure(fd)) return fail(random);
  return real(&fsync, "fsync")(fd);
}
int fdatasync(int fd) {
  if (const std::uint64_t random = failure(fd)) return fail(random);
  return real(&fdatasync, "fdatasync")(fd);
}
int ftruncate(int fd, off_t size) noexcept {
  if (const std::uint64_t random = failure(fd)) return fail(random);
  return real(&ftruncate, "ftruncate")(fd, size);
}
int ftruncate64(int fd, off64_t size) noexcept {
  if (const std::uint64_t random = failure(fd)) return fail(random);
  return real(&ftruncate64, "ftruncate64")(fd, size);
}

}  // extern "C"
