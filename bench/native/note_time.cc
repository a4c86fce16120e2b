// The worker of the bench's start, exit, restart and memory measurements: says when it reached
// main, stays until it is let go, says when it ends.
//
//     note_time MODE       MUSTER_BENCH_NOTES: pipe to write to; MUSTER_BENCH_GATE: pipe to wait at
//
//     exit        ends at once
//     hold        waits until the gate's writer is gone, then ends with status 0
//     fail-once   as hold; but in the first attempt local rank 0 ends with status 1 and the others
//                 stay until they are stopped
//
// It is linked statically where that is possible: its own start should cost next to nothing.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/native/notes.h"

namespace {

using muster::bench::env_or;
using muster::bench::monotonic_ns;
using muster::bench::Notes;

/// Returns when nobody holds the gate open for writing: at once if it was opened long ago.
bool wait_at_gate() {
  // A plain open for reading would wait for a writer, also when there will never be one again.
  const int gate = open(env_or("MUSTER_BENCH_GATE", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (gate < 0 || fcntl(gate, F_SETFL, 0) < 0) {
    std::perror("MUSTER_BENCH_GATE");
    return false;
  }
  char byte = 0;
  for (;;) {
    const ssize_t got = read(gate, &byte, 1);
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

int end(const Notes& notes, int status) {
  notes.write_line("end", monotonic_ns());
  _exit(status);
}

}  // namespace

int main(int argc, char** argv) {
  const long long at_main = monotonic_ns();
  const Notes notes;
  notes.write_line("main", at_main);
  const char* mode = argc > 1 ? argv[1] : "exit";
  if (std::strcmp(mode, "exit") == 0) return end(notes, 0);
  const bool fail_once = std::strcmp(mode, "fail-once") == 0;
  if (!fail_once && std::strcmp(mode, "hold") != 0) {
    std::fprintf(stderr, "note_time: unknown mode '%s'\n", mode);
    return 64;
  }
  if (!wait_at_gate()) return 73;
  const bool first_attempt = std::strcmp(env_or("TORCHELASTIC_RESTART_COUNT", "0"), "0") == 0;
  if (!fail_once || !first_attempt) return end(notes, 0);
  if (std::strcmp(env_or("LOCAL_RANK", ""), "0") == 0) return end(notes, 1);
  for (;;)
    pause();
}
