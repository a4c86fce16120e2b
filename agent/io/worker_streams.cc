#include "agent/io/worker_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/logs/log_space.h"

namespace muster {
namespace {

boost::system::error_code from_errno(int number) {
  return {number, boost::system::system_category()};
}

constexpr const char* kNoFileSize =
    "the limit of a file's size (`ulimit -f`) leaves no room for logs";

Result<int> open_file(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) return from_errno(errno);
  return fd;
}

// A file that a plug-in chose may be anything: a FIFO that nobody reads is an error, not a wait.
Result<int> open_chosen_file(const std::string& path, bool begin_anew) {
  const int anew = begin_anew ? O_TRUNC : 0;
  const Result<int> fd = open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | anew);
  if (fd) ::fcntl(*fd, F_SETFL, O_APPEND);
  return fd;
}

bool is_regular_file(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// The log thread opens what it shows, and must not wait for a FIFO's writer.
bool can_be_followed(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? S_ISREG(info.st_mode) : errno == ENOENT;
}

}  // namespace

boost::system::error_code WorkerStreams::begin(AttemptLogPlan plan) {
  plan_ = std::move(plan);
  files_.clear();
  if (!plan_.chosen_by_plugin) return {};  // All is new in a directory of our own.
  for (const std::string& file : {plan_.filtered_stdout, plan_.filtered_stderr}) {
    if (file.empty()) continue;
    const Result<int> fd = open_chosen_file(file, true);
    if (!fd) return fd.error();
    ::close(*fd);
  }
  return {};
}

void WorkerStreams::show_more() {
  for (const ShownFile& shown : plan_.more_shown)
    if (can_be_followed(shown.file)) follow(shown);
}

Result<std::vector<int>> WorkerStreams::open(WorkerLogPlan& log, std::uint32_t& streams) {
  std::vector<int> fds;
  if (log.one_tap) {
    const Result<int> pipe = pump_.tap({log.local_rank, LogStream::Err, log.err.to_console});
    if (!pipe) return pipe.error();
    const Result<int> again = [&]() -> Result<int> {
      const int fd = ::fcntl(*pipe, F_DUPFD_CLOEXEC, 3);
      return fd < 0 ? Result<int>(from_errno(errno)) : fd;
    }();
    fds.push_back(*pipe);
    if (!again) {
      ::close(*pipe);
      return again.error();
    }
    fds.push_back(*again);
    streams = 0b110;
    return fds;
  }
  for (const bool is_stderr : {false, true}) {
    const StreamPlan& stream = is_stderr ? log.err : log.out;
    if (stream.target == StreamTarget::Inherit) continue;
    const Result<int> fd = open_stream(log, is_stderr);
    if (!fd) {
      for (const int opened : fds)
        ::close(opened);
      return fd.error();
    }
    fds.push_back(*fd);
    streams |= is_stderr ? 0b100U : 0b010U;
  }
  return fds;
}

Result<int> WorkerStreams::open_stream(WorkerLogPlan& log, bool is_stderr) {
  const StreamPlan& stream = is_stderr ? log.err : log.out;
  const LogStream console = is_stderr ? LogStream::Err : LogStream::Out;
  switch (stream.target) {
    case StreamTarget::Discard:
      return open_file("/dev/null", O_WRONLY);
    case StreamTarget::Tap:
      return pump_.tap({log.local_rank, console, stream.to_console});
    case StreamTarget::File:
      return open_log_file(log, is_stderr);
    case StreamTarget::Inherit:
      break;  // The caller's case.
  }
  return from_errno(EINVAL);
}

Result<int> WorkerStreams::open_log_file(WorkerLogPlan& log, bool is_stderr) {
  const StreamPlan stream = is_stderr ? log.err : log.out;
  const LocalRank rank = log.local_rank;
  const bool is_new = files_.insert(stream.file).second;
  const Result<int> fd = plan_.chosen_by_plugin
                             ? open_chosen_file(stream.file, is_new)
                             : open_file(stream.file, O_WRONLY | O_CREAT | O_APPEND);
  if (fd && plan_.chosen_by_plugin && !is_regular_file(*fd))
    return fd;  // Nothing can be kept of it.
  const int error = fd ? reserve_log_space(*fd) : fd.error().value();
  if (fd && error != 0) ::close(*fd);
  if (error == EFBIG || is_disk_full(error)) {
    if (options_.log.on_full == LogOnFull::Fail) return from_errno(error);
    return without_log_file(log, is_stderr, error);
  }
  if (!fd) return fd;
  if (is_new) pump_.keep(stream.file);
  if (is_stderr) pump_.keep_tail_of(rank, stream.file);
  const Result<int> result = worker_end(*fd, stream.file);
  if (!result || !stream.to_console) return result;
  follow({rank, is_stderr, stream.file, log.prefix});
  return result;
}

void WorkerStreams::follow(const ShownFile& shown) {
  const LogOptions& options = options_.log;
  pump_.follow(
      {shown.local_rank, shown.is_stderr ? LogStream::Err : LogStream::Out, shown.file,
       shown.prefix,
       shown.is_stderr ? options.duplicate_stderr_filters : options.duplicate_stdout_filters,
       shown.is_stderr ? plan_.filtered_stderr : plan_.filtered_stdout});
}

// What the worker gets of its log file: the file itself, or a pipe to the log thread.
Result<int> WorkerStreams::worker_end(int file, const std::string& path) {
  if (options_.log.on_full != LogOnFull::Drop) return file;
  ::close(file);
  return pump_.record(path);
}

// The disk is full before the worker has begun: it does without the file, not without running.
Result<int> WorkerStreams::without_log_file(WorkerLogPlan& log, bool is_stderr, int error) {
  StreamPlan& stream = is_stderr ? log.err : log.out;
  const char* place = stream.to_console ? "only to the console" : "nowhere";
  spdlog::warn("{}: {} goes {} (--log-on-full=fail ends the job instead)",
               is_disk_full(error) ? "the disk of the logs is full" : kNoFileSize, stream.file,
               is_stderr && !stream.to_console ? "only to a failure report" : place);
  const bool shown = stream.to_console;
  stream = {is_stderr ? StreamTarget::Tap : StreamTarget::Discard, "", shown};
  if (is_stderr) return pump_.tap({log.local_rank, LogStream::Err, shown});
  if (!shown) return open_file("/dev/null", O_WRONLY);
  const int fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  return fd < 0 ? Result<int>(from_errno(errno)) : fd;
}

}  // namespace muster
