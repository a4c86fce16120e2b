// The notes with which the bench's workers report the times of events.
//
// A note is one line, written in one write:
//     WHAT LOCAL_RANK RESTART_COUNT PID NANOSECONDS
// The clock is CLOCK_MONOTONIC, which all processes on the machine share. bench/run reads the notes
// (muster_bench/command.py).
#pragma once

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace muster::bench {

inline long long monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

inline const char* env_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// The pipe that MUSTER_BENCH_NOTES names. Without it, the process ends with status 70.
class Notes {
 public:
  Notes() : fd_(open(env_or("MUSTER_BENCH_NOTES", ""), O_WRONLY | O_APPEND | O_CLOEXEC)) {
    if (fd_ >= 0) return;
    std::perror("MUSTER_BENCH_NOTES");
    _exit(70);
  }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  /// Writes one line. It is shorter than PIPE_BUF, so the lines of several writers do not mix.
  void write_line(const char* what, long long at_ns) const {
    char line[160];
    const int length =
        std::snprintf(line, sizeof line, "%s %s %s %d %lld\n", what, env_or("LOCAL_RANK", "-1"),
                      env_or("TORCHELASTIC_RESTART_COUNT", "0"), static_cast<int>(getpid()), at_ns);
    if (length <= 0 || length >= static_cast<int>(sizeof line)) _exit(71);
    if (write(fd_, line, static_cast<std::size_t>(length)) != length) _exit(72);
  }

 private:
  const int fd_;
};

}  // namespace muster::bench
