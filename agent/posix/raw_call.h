// System calls that do not write errno, for a child that shares its parent's memory: errno is part
// of that memory.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace muster {

#if defined(__x86_64__)

/// Returns what the kernel returns: a result, or minus an errno.
inline long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  long result = number;
  register long fourth asm("r10") = d;
  register long fifth asm("r8") = e;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
               : "rcx", "r11", "memory");
  return result;
}
inline constexpr bool kRawCallLeavesErrno = true;

#elif defined(__aarch64__)

inline long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  register long call asm("x8") = number;
  register long first asm("x0") = a;
  register long second asm("x1") = b;
  register long third asm("x2") = c;
  register long fourth asm("x3") = d;
  register long fifth asm("x4") = e;
  asm volatile("svc #0"
               : "+r"(first)
               : "r"(call), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
               : "memory");
  return first;
}
inline constexpr bool kRawCallLeavesErrno = true;

#else

inline long raw_call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  const long result = ::syscall(number, a, b, c, d, e);
  return result < 0 ? -errno : result;
}
inline constexpr bool kRawCallLeavesErrno = false;

#endif

}  // namespace muster
