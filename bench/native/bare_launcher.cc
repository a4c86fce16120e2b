// The physical limit that the bench shows beside the launchers. It starts N copies of a program and
// waits for them, and does nothing else of a launcher's work (no store, no logs, no signals).
//
//     bare_launcher [--restarts K] N PROGRAM [ARGUMENT...]
//
// With --restarts, if a copy fails, bare_launcher stops the others by SIGTERM and starts all of
// them again, at most K times. Each copy gets RANK, LOCAL_RANK, WORLD_SIZE and
// TORCHELASTIC_RESTART_COUNT.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Group {
  std::vector<pid_t> pids;
  bool failed = false;
};

std::vector<std::string> environment_of(int rank, int count, int attempt) {
  return {"RANK=" + std::to_string(rank), "LOCAL_RANK=" + std::to_string(rank),
          "WORLD_SIZE=" + std::to_string(count),
          "TORCHELASTIC_RESTART_COUNT=" + std::to_string(attempt)};
}

/// Starts `count` copies. glibc's posix_spawn is clone(VM | VFORK) and execve, the cheapest way.
bool start(Group& group, int count, int attempt, char** command) {
  for (int rank = 0; rank < count; ++rank) {
    std::vector<std::string> own = environment_of(rank, count, attempt);
    std::vector<char*> environment;
    environment.reserve(own.size() + 1);
    for (std::string& entry : own)
      environment.push_back(entry.data());
    for (char** entry = environ; *entry != nullptr; ++entry)
      environment.push_back(*entry);
    environment.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawnp(&pid, command[0], nullptr, nullptr, command, environment.data());
    if (error != 0) {
      std::fprintf(stderr, "bare_launcher: %s: %s\n", command[0], std::strerror(error));
      return false;
    }
    group.pids.push_back(pid);
  }
  return true;
}

void wait_for_all(Group& group) {
  std::size_t left = group.pids.size();
  while (left > 0) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return;
    --left;
    const bool bad = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (!bad || group.failed) continue;
    group.failed = true;
    for (const pid_t other : group.pids) {
      if (other != pid) kill(other, SIGTERM);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int next = 1;
  int restarts = 0;
  if (argc > 3 && std::strcmp(argv[1], "--restarts") == 0) {
    restarts = std::atoi(argv[2]);
    next = 3;
  }
  const int count = argc > next ? std::atoi(argv[next]) : 0;
  if (count < 1 || argc <= next + 1) {
    std::fprintf(stderr, "usage: bare_launcher [--restarts K] N PROGRAM [ARGUMENT...]\n");
    return 64;
  }
  for (int attempt = 0;; ++attempt) {
    Group group;
    const bool started = start(group, count, attempt, argv + next + 1);
    if (!started) {
      for (const pid_t pid : group.pids)
        kill(pid, SIGTERM);
    }
    wait_for_all(group);
    if (!started) return 71;
    if (!group.failed) return 0;
    if (attempt == restarts) return 1;
  }
}
