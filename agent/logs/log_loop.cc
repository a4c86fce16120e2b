#include "agent/logs/log_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include <spdlog/spdlog.h>

#include "rendezvous/core/check.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMailbox = 0;
constexpr std::uint64_t kInotify = 1;
constexpr std::uint64_t kFirstOutput = 2;
constexpr std::uint64_t kFirstTap = 16;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kMaxUnwrittenBytes = 1 << 20;    // Of a console, before its streams wait.
constexpr Duration kRetryInterval = milliseconds(10);  // Of a console that epoll cannot wait for.
constexpr std::size_t kPointerBytes = sizeof(void*);
constexpr Duration kLongWait = std::chrono::hours(1);

}  // namespace

Result<std::unique_ptr<LogLoop>> LogLoop::open(const LogPump::Options& options, LogFd mailbox) {
  LogFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return boost::system::error_code(errno, boost::system::system_category());
  std::unique_ptr<LogLoop> loop(new LogLoop(options, std::move(mailbox), std::move(epoll)));
  std::uint32_t interest = 0;
  if (!loop->set_interest(loop->mailbox_.get(), kMailbox, interest, EPOLLIN))
    return boost::system::error_code(errno, boost::system::system_category());
  return loop;
}

LogLoop::LogLoop(const LogPump::Options& options, LogFd mailbox, LogFd epoll)
    : limits_(options.limits),
      space_(options.space),
      mailbox_(std::move(mailbox)),
      epoll_(std::move(epoll)),
      inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      next_tap_(kFirstTap),
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

bool LogLoop::has_room(LogOutput& output) {
  return output.console.unwritten_bytes() <= kMaxUnwrittenBytes;
}

bool LogLoop::run() {
  while (!stopped_ && !abandoned_) {
    update_interests(now());
    wait();
    const Instant time = now();
    time_text_.clear();
    read_files(time);
    keep_files();
    expire(time);
    flush();
    advance_catching_up(time);
    advance_finishing(time);
  }
  forget_messages();
  return all_done_;
}

void LogLoop::wait() {
  const Instant before = now();
  const Duration left = std::max(Duration(0), next_turn(before) - before);
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
  for (int i = 0; i < count; ++i)
    dispatch(events[static_cast<std::size_t>(i)].data.u64);
}

void LogLoop::dispatch(std::uint64_t id) {
  if (id == kMailbox) return read_mailbox();
  if (id == kInotify) return read_inotify();
  if (id >= kFirstTap) return read_pipe(id);
  // A console has room again: flush() comes with every turn.
}

Instant LogLoop::next_turn(Instant now) const {
  Instant next = now + kLongWait;
  if (files_resume_ > now) next = files_resume_;  // inotify is listened to again from then.
  for (const auto& file : files_) {
    if (file->dirty && has_room(file->output())) next = std::min(next, files_resume_);
    if (file->must_be_polled()) next = std::min(next, polled_ + kPollInterval);
    if (const auto deadline = file->next_deadline()) next = std::min(next, *deadline);
  }
  for (const auto& space : kept_)
    if (space->must_be_polled()) next = std::min(next, polled_ + kPollInterval);
  for (const auto& output : outputs_)
    if (!output->can_wait && output->console.unwritten_bytes() > 0)
      next = std::min(next, now + kRetryInterval);
  if (finishing_) next = std::min(next, finishing_->deadline);
  for (const CatchingUp& one : catching_up_)
    next = std::min(next, one.deadline);
  return next;
}

void LogLoop::read_mailbox() {
  const auto messages = take_messages();
  for (const auto& message : messages)
    if (!abandoned_) (*message)(*this);
  forget_messages();
}

/// Once it is abandoned: nobody else would free what came while it hung.
void LogLoop::forget_messages() {
  pollfd more{mailbox_.get(), POLLIN, 0};
  while (abandoned_ && ::poll(&more, 1, 0) > 0 && (more.revents & POLLIN) != 0)
    take_messages();
}

std::vector<std::unique_ptr<LogLoop::Message>> LogLoop::take_messages() {
  std::array<Message*, 64> pointers{};
  const ssize_t n =
      ::read(mailbox_.get(), static_cast<void*>(pointers.data()), pointers.size() * kPointerBytes);
  if (n <= 0) return {};
  // Pointers are written whole, so they are read whole.
  MUSTER_CHECK(static_cast<std::size_t>(n) % kPointerBytes == 0);
  std::vector<std::unique_ptr<Message>> messages;
  messages.reserve(pointers.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(n) / kPointerBytes; ++i)
    messages.emplace_back(pointers[i]);
  return messages;
}

void LogLoop::expire(Instant now) {
  for (const auto& file : files_)
    if (const auto deadline = file->next_deadline(); deadline && now >= *deadline)
      file->on_time(now, file->needs_time() ? time_text() : std::string_view());
}

void LogLoop::flush() {
  for (const auto& output : outputs_)
    output->console.flush();
  for (const auto& [path, file] : filtered_)
    file->flush();
}

void LogLoop::update_interests(Instant now) {
  if (inotify_.is_open())
    set_interest(inotify_.get(), kInotify, inotify_interest_, now < files_resume_ ? 0U : EPOLLIN);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = *outputs_[i];
    if (!output.console.fd_is_open() || !output.can_wait) continue;
    const std::uint32_t wanted = output.console.unwritten_bytes() > 0 ? EPOLLOUT : 0U;
    output.can_wait = set_interest(output.console.fd(), kFirstOutput + i, output.interest, wanted);
  }
  for (const auto& [id, tap] : taps_) {
    const bool wanted = !tap->has_ended && (tap->output() == nullptr || has_room(*tap->output()));
    set_interest(tap->fd(), id, tap->interest, wanted ? EPOLLIN : 0U);
  }
  for (const auto& [id, record] : records_)
    set_interest(record->fd(), id, record->interest, record->has_ended ? 0U : EPOLLIN);
}

// Nothing wanted means out of epoll, which else reports a hang-up again and again.
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
  if (options.stream == LogStream::Err) keep_tail_of(options.worker, options.file);
  FollowedFile::Options file{.id = next_stream_++,
                             .path = options.file,
                             .prefix = std::move(options.prefix),
                             .filters = std::move(options.filters),
                             .filtered = nullptr,
                             .limits = limits_};
  if (!options.filtered_file.empty()) {
    auto& filtered = filtered_[options.filtered_file];
    if (!filtered) filtered = std::make_shared<LogFilterFile>(options.filtered_file);
    file.filtered = filtered;
  }
  files_.push_back(std::make_unique<FollowedFile>(std::move(file), output_of(options.stream)));
  // Watched first, read afterwards: nothing falls between.
  if (inotify_.is_open())
    files_.back()->watch = ::inotify_add_watch(inotify_.get(), options.file.c_str(), IN_MODIFY);
}

void LogLoop::tap(const TapOptions& options, LogFd read_end) {
  Output* output = options.to_console ? &output_of(options.console) : nullptr;
  auto tap = std::make_unique<TappedPipe>(std::move(read_end), output);
  tap->worker = options.worker;
  last_tails_.erase(options.worker);
  taps_.emplace(next_tap_++, std::move(tap));
}

void LogLoop::keep_tail_of(LocalRank worker, std::string stderr_file) {
  last_tails_.erase(worker);
  stderr_files_[worker] = std::move(stderr_file);
}

void LogLoop::keep(const std::string& file) {
  kept_.push_back(std::make_unique<LogSpace>(file, space_));
  if (inotify_.is_open())
    kept_.back()->watch = ::inotify_add_watch(inotify_.get(), file.c_str(), IN_MODIFY);
}

void LogLoop::record(const std::string& file, LogFd read_end) {
  records_.emplace(next_tap_++, std::make_unique<RecordedPipe>(std::move(read_end), file));
}

std::string_view LogLoop::time_text() {
  if (time_text_.empty()) {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    tm local{};
    ::localtime_r(&time.tv_sec, &local);
    char text[64];
    std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03ld", local.tm_hour, local.tm_min,
                  local.tm_sec, time.tv_nsec / 1'000'000);
    time_text_ = text;
  }
  return time_text_;
}

}  // namespace muster
