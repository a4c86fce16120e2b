// The worker of the bench's measurements of launchers. It writes a note when it reaches main, waits
// at the gate, and writes a note when it ends.
//
//     note_time MODE
//
//     exit        ends at once
//     hold        waits until no process has the gate open for writing, then ends with status 0
//     fail-once   as hold, but in the first attempt local rank 0 ends with status 1, and the others
//                 stay until they are stopped
//     peers       as hold, but has a connection to MUSTER_BENCH_PEERS, and ends with status 1 when
//                 it receives anything or the connection breaks, like a worker whose peer is gone
//
// MUSTER_BENCH_NOTES names the pipe for the notes, and MUSTER_BENCH_GATE the pipe of the gate. The
// program is linked statically where this is possible, because then its own start takes almost no
// time.
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

/// Returns a descriptor, or prints an error and returns -1.
int open_gate() {
  // A blocking open() would wait for a writer for ever if the gate was opened before.
  const int gate = open(env_or("MUSTER_BENCH_GATE", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (gate >= 0 && fcntl(gate, F_SETFL, 0) == 0) return gate;
  std::perror("MUSTER_BENCH_GATE");
  return -1;
}

/// Waits until no process has the gate open for writing. Returns at once if this is so already.
/// Returns false after an error.
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

/// Connects to MUSTER_BENCH_PEERS and sends the pid. Returns the socket, or -1 after an error.
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

/// Waits until the gate is open or a peer is gone, and returns the exit status.
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
