// Shifts the wall clock, as an administrator or a time server does. Tests preload this library into
// all programs that they start.
//
// SHIFTED_CLOCK names a file of 8 bytes: the shift in seconds, as an int64 of this machine. Each
// call reads it, so a test changes the shift by writing to the file. Only CLOCK_REALTIME is
// shifted: clock_gettime(), gettimeofday(), time(). The kernel's own timers and the times of files
// are not.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

using Shift = std::atomic<std::int64_t>;
static_assert(Shift::is_always_lock_free && sizeof(Shift) == sizeof(std::int64_t));

const Shift* map_shift() {
  const char* path = std::getenv("SHIFTED_CLOCK");
  if (path == nullptr) return nullptr;
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory = ::mmap(nullptr, sizeof(Shift), PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<const Shift*>(memory);
}

std::int64_t shift_s() {
  static const Shift* const shift = map_shift();
  return shift == nullptr ? 0 : shift->load(std::memory_order_relaxed);
}

bool is_wall_clock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

// `function` only gives the type of the function called `name`.
template <typename Function>
Function* next(Function* /*function*/, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const real = next(&::clock_gettime, "clock_gettime");
  const int result = real(clock, time);
  if (result == 0 && is_wall_clock(clock)) time->tv_sec += shift_s();
  return result;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  static auto* const real = next(&::gettimeofday, "gettimeofday");
  const int result = real(time, zone);
  if (result == 0) time->tv_sec += shift_s();
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
