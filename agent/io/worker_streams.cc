#include "agent/io/worker_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/pipe_size.h"
#include "agent/logs/pipe_growth.h"
#include "base/from_errno.h"

namespace muster {
namespace {

bool share_file(const WorkerLogPlan& log) {
  return log.out.target == StreamTarget::File && log.err.target == StreamTarget::File &&
         log.out.file == log.err.file;
}

/// Whether the log thread writes this file. A worker itself writes a plug-in's FIFO or device.
bool is_written_here(const LogFile& file) {
  return file.error() != 0 || file.is_regular();
}

/// `fd` is what a system call has just returned.
Result<OwnedFd> opened(int fd) {
  if (fd < 0) return from_errno(errno);
  return OwnedFd(fd);
}

Result<OwnedFd> duplicate(int fd) {
  return opened(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

WorkerStreams::WorkerStreams(const AgentOptions& options)
    : options_(options), user_pipe_pages_(user_pipe_pages()) {}

std::size_t WorkerStreams::size_of_pipe(StreamTarget target) const {
  std::size_t pipes = 0;
  for (const WorkerLogPlan& worker : attempt_files_.plan.workers) {
    const bool out = worker.out.target == target && !worker.one_tap;
    pipes += std::size_t{out} + std::size_t{worker.err.target == target};
  }
  const std::size_t jobs = target == StreamTarget::File ? kJobsWithFiles : kJobsWithConsole;
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return pipe_bytes(pipes, jobs, user_pipe_pages_, page_bytes);
}

void WorkerStreams::show_more(LogPump& pump) {
  for (const ShownFile& shown : attempt_files_.plan.more_shown) {
    const auto made = attempt_files_.files.find(shown.file);
    const bool is_ours = made != attempt_files_.files.end() && is_written_here(*made->second);
    follow(pump, shown, is_ours ? made->second : nullptr);
  }
  close_unused_files(pump);
}

void WorkerStreams::close_unused_files(LogPump& pump) {
  if (!attempt_files_.files.empty()) pump.run([files = std::exchange(attempt_files_.files, {})] {});
}

boost::system::error_code WorkerStreams::open(LogPump& pump, const WorkerLogPlan& log,
                                              std::uint32_t& streams, std::vector<OwnedFd>& fds) {
  for (const bool is_stderr : {false, true}) {
    const StreamPlan& stream = is_stderr || log.one_tap ? log.err : log.out;
    if (stream.target == StreamTarget::Inherit) continue;
    // One pipe for both streams keeps the order in which the worker wrote.
    const bool is_shared = is_stderr && streams != 0 && (log.one_tap || share_file(log));
    Result<OwnedFd> fd =
        is_shared ? duplicate(fds.back().get()) : open_stream(pump, log, is_stderr || log.one_tap);
    if (!fd) return fd.error();
    if (!fd->is_open()) continue;
    fds.push_back(std::move(*fd));
    streams |= is_stderr ? 0b100U : 0b010U;
  }
  return {};
}

Result<OwnedFd> WorkerStreams::open_stream(LogPump& pump, const WorkerLogPlan& log,
                                           bool is_stderr) {
  const StreamPlan& stream = is_stderr ? log.err : log.out;
  switch (stream.target) {
    case StreamTarget::Discard:
      return opened(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    case StreamTarget::Tap:
      return open_tap(pump, log, is_stderr);
    case StreamTarget::File:
      return open_log_file(pump, log, is_stderr);
    case StreamTarget::Inherit:
      break;  // open() does not call this function then.
  }
  return from_errno(EINVAL);
}

Result<OwnedFd> WorkerStreams::open_tap(LogPump& pump, const WorkerLogPlan& log, bool is_stderr) {
  PipeOptions options{.tail_of = log.local_rank, .bytes = size_of_pipe(StreamTarget::Tap)};
  if ((is_stderr ? log.err : log.out).to_console)
    options.console = is_stderr ? LogStream::Err : LogStream::Out;
  if (!log.terminal_tap) return pump.pipe(std::move(options));
  auto terminal = pump.terminal(options);
  if (terminal) {
    spare_reader_ = std::move(terminal->spare_reader);
    return std::move(terminal->worker);
  }
  // A container without devpts, or a system that has all the terminals that it may have.
  spdlog::debug("worker_terminal_not_made reason=\"{}\"", terminal.error().message());
  if (options_.log.capture_stderr == CaptureStderr::Always) return pump.pipe(std::move(options));
  return OwnedFd();
}

std::array<std::string, 2> WorkerStreams::log_files(const WorkerLogPlan& log) const {
  std::array<std::string, 2> files;
  for (const bool is_stderr : {false, true}) {
    const StreamPlan& stream = is_stderr ? log.err : log.out;
    std::string& file = files[is_stderr ? 1 : 0];
    if (stream.target == StreamTarget::Tap && stream.to_console)
      file = log.one_tap || is_stderr ? "/dev/fd/2" : "/dev/fd/1";
    if (stream.target != StreamTarget::File) continue;
    const auto made = attempt_files_.files.find(stream.file);
    if (made == attempt_files_.files.end() || !made->second->is_regular()) continue;
    std::error_code removed;  // The working directory.
    if (auto path = std::filesystem::absolute(stream.file, removed); !removed) file = path;
  }
  return files;
}

void WorkerStreams::move_handles(const WorkerLogPlan& log, std::uint32_t& handles,
                                 std::vector<OwnedFd>& fds) {
  for (const bool is_stderr : {false, true}) {
    const StreamPlan& stream = is_stderr ? log.err : log.out;
    if (stream.target == StreamTarget::Tap && spare_reader_.is_open()) {
      fds.push_back(std::move(spare_reader_));
      handles |= is_stderr ? 0b100U : 0b010U;
    }
    const auto handle = attempt_files_.handles.find(stream.file);
    if (stream.target != StreamTarget::File || handle == attempt_files_.handles.end()) continue;
    if (!handle->second.is_open()) continue;
    fds.push_back(std::move(handle->second));
    handles |= is_stderr ? 0b100U : 0b010U;
  }
}

Result<OwnedFd> WorkerStreams::open_log_file(LogPump& pump, const WorkerLogPlan& log,
                                             bool is_stderr) {
  const StreamPlan& stream = is_stderr ? log.err : log.out;
  const auto found = attempt_files_.files.find(stream.file);
  if (found == attempt_files_.files.end()) return from_errno(ENOENT);
  const std::shared_ptr<LogFile>& file = found->second;
  if (!is_written_here(*file)) {
    ::fcntl(file->fd(), F_SETFL, O_APPEND);
    return duplicate(file->fd());
  }
  PipeOptions options{.file = file, .bytes = size_of_pipe(StreamTarget::File)};
  if (is_stderr || share_file(log)) options.tail_of = log.local_rank;
  // Before the pipe: a file over its limit keeps only what its readers have not shown.
  if (stream.to_console) follow(pump, {log.local_rank, is_stderr, stream.file, log.prefix}, file);
  return pump.pipe(std::move(options));
}

void WorkerStreams::follow(LogPump& pump, const ShownFile& shown, std::shared_ptr<LogFile> file) {
  const LogOptions& options = options_.log;
  pump.follow({.stream = shown.is_stderr ? LogStream::Err : LogStream::Out,
               .file = shown.file,
               .prefix = shown.prefix,
               .filters = shown.is_stderr ? options.duplicate_stderr_filters
                                          : options.duplicate_stdout_filters,
               .filtered_file = shown.is_stderr ? attempt_files_.plan.filtered_stderr
                                                : attempt_files_.plan.filtered_stdout,
               .filtered_options = attempt_files_.file_options,
               .written_here = std::move(file)});
}

}  // namespace muster
