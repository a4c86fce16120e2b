// The worker of the bench's start, exit, restart and memory measurements: says when it reached
// main, stays until it is let go, says when it ends.
//
//     note_time MODE       MUSTER_BENCH_NOTES: pipe to write to; MUSTER_BENCH_GATE: pipe to wait at
//
//     exit        ends at once
//     hold        waits until the gate's writer is gone, then ends with status 0
//     fail-once   as hold; but in the first attempt local rank 0 ends with status 1 and the others
//                 stay until they are stopped
//     peers       as hold; but it is connected to MUSTER_BENCH_PEERS, and when that connection says
//                 anything or breaks, it ends with status 1: as a worker does whose peer is gone
//
// It is linked statically where that is possible: its own start should cost next to nothing.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/native/notes.h"

namespace {

using muster::bench::env_or;
using muster::bench::monotonic_ns;
using muster::bench::Notes;

/// A descriptor, or -1 after saying why not.
int open_gate() {
  // A plain open for reading would wait for a writer, also when there will never be one again.
  const int gate = open(env_or("MUSTER_BENCH_GATE", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (gate >= 0 && fcntl(gate, F_SETFL, 0) == 0) return gate;
  std::perror("MUSTER_BENCH_GATE");
  return -1;
}

/// Returns when nobody holds the gate open for writing: at once if it was opened long ago.
bool wait_at_gate() {
  const int gate = open_gate();
  if (gate < 0) return false;
  char byte = 0;
  for (;;) {
    const ssize_t got = read(gate, &byte, 1);
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
  }
}

/// Tells its pid to whoever stands for the other workers.
int connect_to_peers() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, env_or("MUSTER_BENCH_PEERS", ""), sizeof address.sun_path - 1);
  char pid[16];
  const int length = std::snprintf(pid, sizeof pid, "%d\n", static_cast<int>(getpid()));
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0 ||
      write(fd, pid, static_cast<std::size_t>(length)) != length) {
    std::perror("MUSTER_BENCH_PEERS");
    return -1;
  }
  return fd;
}

/// The status to end with, once the gate is open or the peers are gone.
int wait_among_peers() {
  pollfd fds[2] = {{open_gate(), POLLIN, 0}, {connect_to_peers(), POLLIN, 0}};
  if (fds[0].fd < 0 || fds[1].fd < 0) return 74;
  while (poll(fds, 2, -1) < 0)
    if (errno != EINTR) return 75;
  return fds[1].revents != 0 ? 1 : 0;
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
  if (std::strcmp(mode, "peers") == 0) return end(notes, wait_among_peers());
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
