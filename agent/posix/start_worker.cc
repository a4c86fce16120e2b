#include "agent/posix/start_worker.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace muster {
namespace {

/// Opens the reading end of the pipe `fd`. The result is not open if no descriptor is left.
OwnedFd open_reader(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return OwnedFd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

/// True if half of all descriptors are in use, because the kernel gives out the lowest free one.
/// The shim then keeps no more handles: workers need the other half.
bool are_scarce(const OwnedFd& last) {
  rlimit limit{};
  return last.is_open() && ::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         static_cast<rlim_t>(last.get()) >= limit.rlim_cur / 2;
}

/// `handles` are those of the log files and terminals, by the worker's descriptor.
std::vector<OutputReader> open_readers(const std::array<int, 3>& fds,
                                       const std::array<const char*, 2>& log_files,
                                       std::array<OwnedFd, 3> handles) {
  std::vector<OutputReader> readers;
  struct stat last {};
  for (std::size_t stream = 1; stream < fds.size(); ++stream) {
    const char* file = log_files[stream - 1];
    OwnedFd& handle = handles[stream];
    struct stat info {};
    if (fds[stream] < 0 || ::fstat(fds[stream], &info) != 0) continue;
    const bool is_terminal = S_ISCHR(info.st_mode) && ::isatty(fds[stream]) == 1;
    if (!S_ISFIFO(info.st_mode) && !is_terminal) continue;
    const bool is_last = info.st_dev == last.st_dev && info.st_ino == last.st_ino;
    if (!readers.empty() && is_last) {  // Two readers would mix up the bytes.
      if (!readers.back().file.empty()) continue;
      readers.back().file = file;
      readers.back().handle = std::move(handle);
      continue;
    }
    OwnedFd reader = is_terminal ? std::move(handle) : open_reader(fds[stream]);
    if (reader.is_open()) readers.push_back({std::move(reader), file, std::move(handle)});
    last = info;
  }
  return readers;
}

/// The worker's descriptors among those of the request, which keeps owning them, and the handles of
/// their log files.
struct Streams {
  std::array<int, 3> fds{-1, -1, -1};
  std::array<OwnedFd, 3> handles;
};

Streams streams_of(const ShimRequest& request, std::vector<OwnedFd>& fds) {
  Streams streams;
  std::size_t next = 1;
  for (std::size_t stream = 0; stream < 3; ++stream)
    if ((request.streams >> stream & 1U) != 0 && next < fds.size())
      streams.fds[stream] = fds[next++].get();
  for (std::size_t stream = 0; stream < 3; ++stream)
    if ((request.handles >> stream & 1U) != 0 && next < fds.size())
      streams.handles[stream] = std::move(fds[next++]);
  for (OwnedFd& handle : streams.handles)
    if (are_scarce(handle)) handle.reset();
  return streams;
}

}  // namespace

BegunWorker begin_worker(const ShimRequest& request, std::vector<OwnedFd> fds,
                         const WorkerSetup& setup, int cgroup) {
  const auto fds_wanted = 1 + static_cast<std::size_t>(std::popcount(request.streams));
  // If the shim is at its limit of open files, the kernel drops descriptors of the packet.
  if (fds.size() < fds_wanted) return {{.error = EMFILE, .step = SpawnStep::Exec}, {}};
  std::optional<PackedCommand> read = read_command(fds[0].get());
  if (!read) return {{.error = EPROTO, .step = SpawnStep::Exec}, {}};
  const auto command = std::make_shared<const PackedCommand>(std::move(*read));
  SpawnOptions options{
      .path = command->path, .argv = command->argv.data(), .env = command->env.data()};
  options.signals = &setup.signals;
  options.not_default = &setup.not_default;
  options.file_limit = &setup.file_limit;
  options.cpu_mask = command->cpu_mask;
  options.cgroup = cgroup;
  options.owner = command;
  Streams streams = streams_of(request, fds);
  options.fds = streams.fds;
  BegunWorker worker{begin_spawn(options), {}};
  if (worker.spawn.error == 0)
    worker.readers = open_readers(streams.fds, command->log_files, std::move(streams.handles));
  return worker;
}

std::vector<OutputReader> worker_readers(const ShimRequest& request, std::vector<OwnedFd>& fds,
                                         const PackedCommand& command) {
  Streams streams = streams_of(request, fds);
  return open_readers(streams.fds, command.log_files, std::move(streams.handles));
}

}  // namespace muster
