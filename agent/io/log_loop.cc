#include "agent/io/log_loop.h"

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
constexpr std::size_t kBytesPerTurn = 1 << 20;       // Of one stream, before the next one's turn.
constexpr std::size_t kMaxUnwrittenBytes = 1 << 20;  // Of a console, before its streams wait.
// A worker that writes line by line would wake us for each: this many at most.
constexpr Duration kFilesPause = milliseconds(2);
constexpr Duration kKeepPause = milliseconds(20);      // The same, where nobody wants to see them.
constexpr Duration kPollInterval = milliseconds(100);  // Of files, where inotify is not to be had.
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
    advance_finishing(time);
  }
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
  return next;
}

void LogLoop::read_mailbox() {
  std::array<Message*, 64> messages{};
  const ssize_t n =
      ::read(mailbox_.get(), static_cast<void*>(messages.data()), messages.size() * kPointerBytes);
  if (n <= 0) return;
  // Pointers are written whole, so they are read whole.
  MUSTER_CHECK(static_cast<std::size_t>(n) % kPointerBytes == 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n) / kPointerBytes; ++i) {
    const std::unique_ptr<Message> message(messages[i]);
    if (!abandoned_) (*message)(*this);
  }
}

void LogLoop::read_inotify() {
  alignas(inotify_event) std::array<char, 64 << 10> events;
  const ssize_t n = ::read(inotify_.get(), events.data(), events.size());
  int last = -1;
  for (std::size_t at = 0; n > 0 && at < static_cast<std::size_t>(n);) {
    inotify_event event;
    std::memcpy(&event, events.data() + at, sizeof event);
    at += sizeof event + event.len;
    const bool all = (event.mask & IN_Q_OVERFLOW) != 0;
    if (!all && event.wd == last) continue;
    last = event.wd;
    for (const auto& file : files_)
      if (all || file->watch == event.wd) file->dirty = true;
    for (const auto& space : kept_)
      if (all || space->watch == event.wd) space->dirty = true;
  }
}

void LogLoop::read_files(Instant now) {
  if (now >= polled_ + kPollInterval) {
    for (const auto& file : files_)
      if (file->must_be_polled()) file->dirty = true;
    for (const auto& space : kept_)
      if (space->must_be_polled()) space->dirty = true;
    polled_ = now;
  }
  if (now < files_resume_) return;
  bool any = false;
  bool more = false;
  for (const auto& file : files_) {
    if (!file->dirty || !has_room(file->output())) continue;
    any = true;
    const std::string_view time = file->needs_time() ? time_text() : std::string_view();
    file->dirty = file->read(kBytesPerTurn, now, time, buffer_);
    more = more || file->dirty;
    file->output().console.flush();
  }
  if (any && !more && !finishing_) files_resume_ = now + kFilesPause;
  const bool tight =
      std::any_of(kept_.begin(), kept_.end(), [](const auto& s) { return s->is_tight(); });
  const bool keeps =
      std::any_of(kept_.begin(), kept_.end(), [](const auto& s) { return s->dirty; });
  if (keeps && !any && !finishing_) files_resume_ = now + (tight ? kFilesPause : kKeepPause);
}

// After read_files(): what was read may go.
void LogLoop::keep_files() {
  for (const auto& space : kept_) {
    if (std::exchange(space->dirty, false)) look_at(*space, false);
  }
}

// True if something was removed.
bool LogLoop::look_at(LogSpace& space, bool is_full) {
  FollowedFile* const follower = follower_of(space);
  const std::int64_t read_to = follower == nullptr ? LogSpace::kAllRead : follower->offset();
  const auto removal = is_full ? space.make_room(read_to) : space.look(read_to);
  if (!removal) return false;
  space.dirty = true;  // There may be more to do.
  if (follower != nullptr)
    follower->removed(*removal, follower->needs_time() ? time_text() : std::string_view());
  return true;
}

bool LogLoop::read_record(RecordedPipe& record) {
  if (!record.has_ended)
    record.has_ended =
        record.read(kBytesPerTurn, buffer_, [&] { return make_room(record.path()); });
  for (const auto& file : files_)
    if (file->path() == record.path()) file->dirty = true;
  for (const auto& space : kept_)
    if (space->path() == record.path()) space->dirty = true;
  return record.has_ended;
}

bool LogLoop::make_room(const std::string& file) {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&file](const auto& space) { return space->path() == file; });
  return found != kept_.end() && look_at(**found, true);
}

FollowedFile* LogLoop::follower_of(const LogSpace& space) const {
  const auto found = std::find_if(files_.begin(), files_.end(), [&space](const auto& file) {
    return file->path() == space.path();
  });
  return found == files_.end() ? nullptr : found->get();
}

void LogLoop::read_pipe(std::uint64_t id) {
  const auto record = records_.find(id);
  if (record == records_.end()) return read_tap(id);
  RecordedPipe& pipe = *record->second;
  if (!read_record(pipe)) return;
  if (pipe.is_forgotten)
    records_.erase(record);
  else
    set_interest(pipe.fd(), id, pipe.interest, 0);
}

void LogLoop::read_tap(std::uint64_t id) {
  const auto found = taps_.find(id);
  if (found == taps_.end()) return;
  TappedPipe& tap = *found->second;
  if (tap.read(kBytesPerTurn, buffer_) != TappedPipe::State::Ended) return;
  if (!tap.worker) {
    taps_.erase(found);  // Closing takes it out of epoll.
    return;
  }
  set_interest(tap.fd(), id, tap.interest, 0);
  tap.has_ended = true;  // Its tail is still to be asked for.
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

void LogLoop::release_files() {
  std::int64_t bytes = 0;
  std::int64_t files = 0;
  for (const auto& space : kept_) {
    if (space->watch >= 0) ::inotify_rm_watch(inotify_.get(), space->watch);
    // What came since the last look counts, too: a worker may have written all in between.
    while (space->look(LogSpace::kAllRead)) {
    }
    space->release();
    bytes += space->dropped_bytes();
    files += space->dropped_bytes() > 0 ? 1 : 0;
  }
  kept_.clear();
  if (bytes > 0)
    spdlog::warn(
        "the full disk cost {} bytes from the middle of {} log files: a line in each says where",
        bytes, files);
}

std::string LogLoop::tail(LocalRank worker) {
  for (auto& [id, tap] : taps_) {
    if (tap->worker != worker) continue;
    // What the worker wrote last may still be in the pipe.
    if (!tap->has_ended && (tap->output() == nullptr || has_room(*tap->output())))
      tap->has_ended = tap->read(kBytesPerTurn, buffer_) == TappedPipe::State::Ended;
    return tap->tail().lines(TailLimits{});
  }
  if (const auto file = stderr_files_.find(worker); file != stderr_files_.end())
    return last_lines_of_file(file->second, TailLimits{});
  const auto last = last_tails_.find(worker);
  return last == last_tails_.end() ? "" : last->second;
}

void LogLoop::finish(Instant deadline, std::function<void(FinishReport)> done) {
  if (finishing_) {  // stop() in the middle of a finish(): both are served together.
    const auto first = std::move(finishing_->done);
    finishing_->deadline = std::min(finishing_->deadline, deadline);
    finishing_->done = [first, done](const FinishReport& report) {
      first(report);
      done(report);
    };
    return;
  }
  finishing_ = Finishing{deadline, std::move(done), true, {}};
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
}

void LogLoop::stop(Instant deadline) {
  finish(deadline, [this](const FinishReport& report) {
    all_done_ = report.all_read && report.all_shown;
    stopped_ = true;
  });
}

bool LogLoop::nothing_to_read() const {
  return std::none_of(files_.begin(), files_.end(), [](const auto& file) { return file->dirty; }) &&
         std::all_of(
             taps_.begin(), taps_.end(),
             [](const auto& tap) { return tap.second->has_ended || !tap.second->worker; }) &&
         std::all_of(records_.begin(), records_.end(), [](const auto& record) {
           return record.second->has_ended || record.second->is_forgotten;
         });
}

void LogLoop::advance_finishing(Instant now) {
  if (!finishing_) return;
  Finishing& finishing = *finishing_;
  const bool late = now >= finishing.deadline;
  if (finishing.reading) {
    if (!late && !nothing_to_read()) return;
    finishing.report.all_read = nothing_to_read();
    finishing.report.stderr_tails = end_streams();
    finishing.reading = false;
  }
  finishing.report.all_shown =
      std::all_of(outputs_.begin(), outputs_.end(),
                  [](const auto& output) { return output->console.unwritten_bytes() == 0; });
  if (!finishing.report.all_shown && !late) return;
  const Finishing finished = std::move(finishing);
  finishing_.reset();
  if (!abandoned_) finished.done(finished.report);
}

std::map<LocalRank, std::string> LogLoop::end_streams() {
  for (const auto& [id, record] : records_)
    record->is_forgotten = true;
  std::erase_if(records_, [](const auto& record) { return record.second->has_ended; });
  for (const auto& file : files_) {
    file->finish(file->needs_time() ? time_text() : std::string_view());
    if (file->watch >= 0) ::inotify_rm_watch(inotify_.get(), file->watch);
  }
  files_.clear();
  release_files();

  std::map<LocalRank, std::string> tails;
  for (auto& [id, tap] : taps_) {
    const std::optional<LocalRank> worker = tap->worker;
    if (!worker) continue;
    if (!tap->has_ended) tap->read(kBytesPerTurn, buffer_);  // A full console does not matter now.
    tails[*worker] = tap->tail().lines(TailLimits{});
    tap->worker.reset();
  }
  std::erase_if(taps_, [](const auto& tap) { return tap.second->has_ended; });
  for (const auto& [worker, file] : stderr_files_)
    tails[worker] = last_lines_of_file(file, TailLimits{});
  stderr_files_.clear();
  flush();  // The filter files, before they are forgotten.
  filtered_.clear();
  last_tails_ = tails;
  return tails;
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
