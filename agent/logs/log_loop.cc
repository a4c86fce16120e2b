#include "agent/logs/log_loop.h"

#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/stat_text.h"
#include "base/from_errno.h"
#include "base/system/clock.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMailbox = 0;
constexpr std::uint64_t kInotify = 1;
constexpr std::uint64_t kFirstOutput = 2;
constexpr std::uint64_t kFirstPipe = 16;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kMaxOwnBytes = 1 << 20;  // For muster's lines: kMaxUnwrittenBytes more.
constexpr Duration kRetryInterval = milliseconds(10);  // For consoles that epoll does not support.
constexpr Duration kFailingInterval = milliseconds(100);
constexpr Duration kLongWait = std::chrono::hours(1);

}  // namespace

Result<std::unique_ptr<LogLoop>> LogLoop::open(const LogPump::Options& options,
                                               std::shared_ptr<LogMailbox> mailbox) {
  OwnedFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return from_errno(errno);
  std::unique_ptr<LogLoop> loop(new LogLoop(options, std::move(mailbox), std::move(epoll)));
  for (const auto& output : loop->outputs_)
    if (const int error = output->console.open_error()) return from_errno(error);
  std::uint32_t interest = 0;
  if (!loop->set_interest(loop->mailbox_->fd(), kMailbox, interest, EPOLLIN))
    return from_errno(errno);
  return loop;
}

LogLoop::LogLoop(const LogPump::Options& options, std::shared_ptr<LogMailbox> mailbox,
                 OwnedFd epoll)
    : mailbox_(std::move(mailbox)),
      epoll_(std::move(epoll)),
      inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      next_pipe_(kFirstPipe),
      buffer_(kReadBytes) {
  if (!inotify_.is_open())
    spdlog::warn("inotify_unavailable reason=\"{}\" effect=\"log files are polled\"",
                 std::strerror(errno));
  outputs_.push_back(std::make_unique<Output>(options.stdout_fd));
  if (!is_one_console(options.stdout_fd, options.stderr_fd))
    outputs_.push_back(std::make_unique<Output>(options.stderr_fd));
}

LogLoop::Output& LogLoop::output_of(LogStream stream) {
  return stream == LogStream::Out ? *outputs_.front() : *outputs_.back();
}

bool LogLoop::run() {
  thread_id_ = static_cast<int>(::syscall(SYS_gettid));  // The packages need only glibc 2.17.
  while (!stopped_ && !abandoned_) {
    update_interests(now());
    wait();
    const Instant time = now();
    time_.begin_turn();
    read_streams(time);
    if (std::exchange(has_mail_, false)) read_mailbox();
    expire(time);
    flush();
    advance_attempt_end();
    advance_catching_up(time);
    advance_finishing(time);
    advance_flushing(time);
  }
  busy_since_ns_ = 0;
  return all_done_;
}

Duration LogLoop::blocked_for() const {
  const std::int64_t since = busy_since_ns_;
  if (since == 0) return Duration(0);
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread_id_) + "/stat"), stat);
  // The turn may have ended meanwhile: a thread that waits for events sleeps as well.
  if (parse_stat(stat).state == 'R' || busy_since_ns_ != since) return Duration(0);
  return now().time_since_epoch() - std::chrono::nanoseconds(since);
}

void LogLoop::wait() {
  const Instant before = now();
  const Duration left = std::max(Duration(0), next_turn(before) - before);
  events_.resize(kFirstPipe + pipes_.size());  // No ready pipe may be left out: see read_streams().
  busy_since_ns_ = 0;
  const int count = ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                                 static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
  record_progress();
  readable_pipes_.clear();
  for (int i = 0; i < count; ++i)
    dispatch(events_[static_cast<std::size_t>(i)].data.u64);
}

void LogLoop::record_progress() {
  busy_since_ns_ = std::chrono::nanoseconds(now().time_since_epoch()).count();
}

void LogLoop::dispatch(std::uint64_t id) {
  if (id == kMailbox) has_mail_ = true;
  if (id == kInotify) read_inotify();
  if (id >= kFirstPipe) readable_pipes_.push_back(id);
  // All other ids are consoles that have room again. Each turn calls flush(), so nothing to do.
}

Instant LogLoop::next_turn(Instant now) const {
  Instant next = now + kLongWait;
  if (files_resume_ > now) next = files_resume_;  // Then the loop watches inotify again.
  for (const auto& file : files_) {
    if (file->dirty && file->output().has_room()) next = std::min(next, files_resume_);
    if (file->must_be_polled()) next = std::min(next, polled_ + kPollInterval);
    const auto deadline = file->dirty ? std::nullopt : file->next_deadline();
    if (deadline) next = std::min(next, *deadline);
  }
  for (const auto& output : outputs_) {
    const LogConsole& console = output->console;
    if (console.unwritten_bytes() == 0) continue;
    if (console.is_failing()) next = std::min(next, now + kFailingInterval);
    if (!output->can_wait) next = std::min(next, now + kRetryInterval);
  }
  if (held_until_) next = std::min(next, *held_until_);
  if (finishing_ && !finishing_->pipes_are_late) next = std::min(next, finishing_->pipes_deadline);
  if (ending_since_ && !wait_logged_) next = std::min(next, *ending_since_ + kExplainAfter);
  if (stop_deadline_ && !hurried_) next = std::min(next, *stop_deadline_);
  return next;
}

void LogLoop::read_mailbox() {
  while (!abandoned_) {
    const auto message = mailbox_->take();
    if (!message) break;
    if (!message->act) {
      print(std::move(message->own));
      continue;
    }
    flush_consoles();  // The call below may take long.
    message->act(*this);
    record_progress();
  }
  dropped_lines_ += mailbox_->take_dropped();
  flush_consoles();
}

void LogLoop::print(OwnText own) {
  if (!held_until_) return print_now(own);
  if (held_bytes_ + own.text.size() > kMaxOwnBytes && own.keep == Keep::IfThereIsRoom) {
    ++dropped_lines_;
    return;
  }
  held_bytes_ += own.text.size();
  held_.push_back(std::move(own));
}

void LogLoop::print_now(const OwnText& own) {
  const auto& [stream, text, keep] = own;
  Output& output = output_of(stream);
  if (output.console.is_closed()) return;
  const bool is_full = output.console.unwritten_bytes() > kMaxUnwrittenBytes + kMaxOwnBytes;
  if (is_full && keep == Keep::IfThereIsRoom) {
    ++dropped_lines_;
    return;
  }
  const std::size_t lines = stream == LogStream::Err ? std::exchange(dropped_lines_, 0) : 0;
  if (lines > 0)
    output.merger.add_own("[muster: " + std::to_string(lines) +
                              " of its own lines are missing here: nobody read them in time]\n",
                          output.console.buffer());
  output.merger.add_own(text, output.console.buffer());
}

void LogLoop::expire(Instant now) {
  for (const auto& file : files_) {
    if (file->dirty) continue;  // The file may have the rest of the line: it waits for the console.
    const auto deadline = file->next_deadline();
    if (!deadline || now < *deadline) continue;
    if (has_unread_rest(*file)) file->expect_more(now);
    file->on_time(now);
  }
}

// A line's deadline can pass although its rest is there: this thread had no processor, or the
// console is slow.
bool LogLoop::has_unread_rest(const FollowedFile& file) const {
  if (file.written_here() == nullptr) return file.is_behind();
  return std::any_of(pipes_.begin(), pipes_.end(), [&file](const auto& pipe) {
    return pipe.second->file() == file.written_here() && pipe.second->has_bytes();
  });
}

void LogLoop::flush_consoles() {
  for (const auto& output : outputs_)
    output->console.flush();
}

void LogLoop::flush() {
  flush_consoles();
  for (const auto& [path, file] : filtered_)
    file->flush();
}

void LogLoop::update_interests(Instant now) {
  if (inotify_.is_open())
    set_interest(inotify_.get(), kInotify, inotify_interest_, now < files_resume_ ? 0U : EPOLLIN);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = *outputs_[i];
    if (!output.console.fd_is_open() || !output.can_wait) continue;
    // epoll reports a failing console as ready all the time, so a timer starts the next try.
    const bool wanted = output.console.unwritten_bytes() > 0 && !output.console.is_failing();
    output.can_wait = set_interest(output.console.fd(), kFirstOutput + i, output.interest,
                                   wanted ? EPOLLOUT : 0U);
  }
  for (const auto& [id, pipe] : pipes_)
    set_interest(pipe->fd(), id, pipe->interest,
                 !pipe->has_ended && pipe->has_room() ? EPOLLIN : 0U);
}

// If nothing is wanted, the descriptor leaves epoll, which otherwise reports a hang-up again and
// again.
bool LogLoop::set_interest(int fd, std::uint64_t id, std::uint32_t& current, std::uint32_t wanted) {
  if (current == wanted) return true;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = id;
  const int operation = wanted == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_ADD;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) return false;
  current = wanted;
  return true;
}

void LogLoop::follow(FollowOptions options) {
  // A plug-in may choose the same file for each attempt, and inotify has only one watch per file.
  const auto old = std::find_if(files_.begin(), files_.end(), [&options](const auto& file) {
    return file->path() == options.file;
  });
  if (old != files_.end() && (*old)->is_over) close_follower(**old);
  LogOutput& output = output_of(options.stream);
  std::shared_ptr<LogFilterFile> filtered;
  if (!options.filtered_file.empty()) {
    auto& shared = filtered_[options.filtered_file];
    if (!shared)
      shared = std::make_shared<LogFilterFile>(options.filtered_file, options.filtered_options);
    filtered = shared;
  }
  files_.push_back(
      std::make_unique<FollowedFile>(std::move(options), std::move(filtered), output, time_));
  FollowedFile& follower = *files_.back();
  // The file is watched before it is read, so no write can be missed between the two.
  if (follower.written_here() == nullptr && inotify_.is_open())
    follower.watch = ::inotify_add_watch(inotify_.get(), follower.path().c_str(), IN_MODIFY);
}

void LogLoop::add_pipe(OwnedFd read_end, const PipeOptions& options) {
  if (options.tail_of)
    for (const auto& [id, old] : pipes_)
      if (old->is_over && old->tail_of() == options.tail_of) old->drop_tail();
  LogOutput* const output = options.console ? &output_of(*options.console) : nullptr;
  pipes_.emplace(next_pipe_++, std::make_unique<WorkerPipe>(std::move(read_end), options, output));
}

}  // namespace muster
