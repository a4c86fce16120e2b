#include "agent/logs/stream_table.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/system/clock.h"

namespace muster {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
// How often files are polled if there is no inotify.
constexpr Duration kPollInterval = std::chrono::milliseconds(100);
// The least time between two reads of files. Otherwise a worker that writes line by line would wake
// the thread for each line.
constexpr Duration kFilesPause = std::chrono::milliseconds(2);

}  // namespace

StreamTable::StreamTable(LogConsoles& consoles, InterestSet& set, BusyThread& thread)
    : consoles_(consoles),
      set_(set),
      thread_(thread),
      inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      buffer_(kReadBytes) {
  if (!inotify_.is_open())
    spdlog::warn("inotify_unavailable reason=\"{}\" effect=\"log files are polled\"",
                 std::strerror(errno));
}

void StreamTable::follow(FollowOptions options) {
  // A plug-in may choose the same file for each attempt, and inotify has only one watch per file.
  const auto old = std::find_if(files_.begin(), files_.end(), [&options](const auto& file) {
    return file->path() == options.file;
  });
  if (old != files_.end() && (*old)->is_over) close_follower(**old);
  LogOutput& output = consoles_.of(options.stream);
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

void StreamTable::add_pipe(OwnedFd read_end, const PipeOptions& options) {
  if (options.tail_of)
    for (const auto& [id, old] : pipes_)
      if (old->is_over && old->tail_of() == options.tail_of) old->drop_tail();
  LogOutput* const output = options.console ? &consoles_.of(*options.console) : nullptr;
  pipes_.emplace(next_pipe_++, std::make_unique<WorkerPipe>(std::move(read_end), options, output));
}

// --- a turn ----------------------------------------------------------------------------------

void StreamTable::on_event(std::uint64_t id) {
  if (id == kInotify) read_inotify();
  if (id >= kFirstPipe) readable_pipes_.push_back(id);
}

void StreamTable::read_inotify() {
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
  }
}

// Streams take turns: a stream that fills a console goes to the end of the queue. So while a stream
// has bytes and waits for room, no other stream can fill its console twice.
void StreamTable::read(Instant now, bool with_pauses) {
  time_.begin_turn();
  if (now >= polled_ + kPollInterval) {
    for (const auto& file : files_)
      if (file->must_be_polled()) file->dirty = true;
    polled_ = now;
  }
  struct Turn {
    std::uint64_t* place;
    std::uint64_t pipe;
    FollowedFile* file;  // Null: it is the turn of the pipe.
  };
  std::vector<Turn> turns;
  for (const std::uint64_t id : readable_pipes_)
    if (const auto found = pipes_.find(id); found != pipes_.end())
      turns.push_back({&found->second->place, id, nullptr});
  if (now >= files_resume_)
    for (const auto& file : files_)
      turns.push_back({&file->place, 0, file.get()});
  std::stable_sort(turns.begin(), turns.end(),
                   [](const Turn& a, const Turn& b) { return *a.place < *b.place; });
  bool any = false;
  bool more = false;
  for (const auto& [place, pipe, file] : turns) {
    if (file == nullptr ? !read_pipe(pipe) : !read_file(*file, now)) continue;
    if (consoles_.any_is_full()) *place = ++last_place_;
    any = any || file != nullptr;
    more = more || (file != nullptr && file->dirty);
  }
  if (any && !more && with_pauses) files_resume_ = now + kFilesPause;
}

bool StreamTable::read_file(FollowedFile& file, Instant now) {
  if (!file.dirty || !file.output().has_room()) return false;
  file.dirty = file.read(now, buffer_);
  file.output().console.flush();
  thread_.record_progress();
  return true;
}

bool StreamTable::read_pipe(std::uint64_t id) {
  const auto found = pipes_.find(id);
  if (found == pipes_.end()) return false;
  WorkerPipe& pipe = *found->second;
  if (!pipe.has_room()) return false;  // Another stream of this turn has filled the console.
  read_pipe(pipe);
  if (pipe.output() != nullptr) pipe.output()->console.flush();
  if (!pipe.has_ended) return true;
  set_.set(pipe.fd(), id, pipe.interest, 0);
  if (pipe.is_over) has_ended_streams_ = true;
  return true;
}

void StreamTable::read_pipe(WorkerPipe& pipe) {
  if (pipe.has_ended) return;
  pipe.has_ended = pipe.read(buffer_) == WorkerPipe::State::Ended;
  thread_.record_progress();
}

void StreamTable::expire(Instant now) {
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
bool StreamTable::has_unread_rest(const FollowedFile& file) const {
  if (file.written_here() == nullptr) return file.is_behind();
  return std::any_of(pipes_.begin(), pipes_.end(), [&file](const auto& pipe) {
    return pipe.second->file() == file.written_here() && pipe.second->has_bytes();
  });
}

void StreamTable::flush() {
  for (const auto& [path, file] : filtered_)
    file->flush();
}

void StreamTable::update_interests(Instant now) {
  if (inotify_.is_open())
    set_.set(inotify_.get(), kInotify, inotify_interest_, now < files_resume_ ? 0U : EPOLLIN);
  for (const auto& [id, pipe] : pipes_)
    set_.set(pipe->fd(), id, pipe->interest, !pipe->has_ended && pipe->has_room() ? EPOLLIN : 0U);
}

Instant StreamTable::next_turn(Instant now, Instant next) const {
  if (files_resume_ > now) next = std::min(next, files_resume_);  // Then inotify is watched again.
  for (const auto& file : files_) {
    if (file->dirty && file->output().has_room()) next = std::min(next, files_resume_);
    if (file->must_be_polled()) next = std::min(next, polled_ + kPollInterval);
    const auto deadline = file->dirty ? std::nullopt : file->next_deadline();
    if (deadline) next = std::min(next, *deadline);
  }
  return next;
}

// --- the end of an attempt and of the job ----------------------------------------------------

void StreamTable::catch_up() {
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
  for (const auto& [id, pipe] : pipes_) {
    if (pipe->has_ended) continue;
    pipe->catch_up();
    if (pipe->has_room()) read_pipe(*pipe);
    if (pipe->has_ended) set_.set(pipe->fd(), id, pipe->interest, 0);
  }
}

// Streams that wait for a stuck stdout do not count: muster's lines go to stderr.
bool StreamTable::is_behind() const {
  const auto counts = [this](const LogOutput* output) {
    return output == nullptr || output == &consoles_.of(LogStream::Err) || output->has_room();
  };
  return std::any_of(
             files_.begin(), files_.end(),
             [&counts](const auto& file) { return file->dirty && counts(&file->output()); }) ||
         std::any_of(pipes_.begin(), pipes_.end(), [&counts](const auto& pipe) {
           return pipe.second->is_behind() && counts(pipe.second->output());
         });
}

LogPump::Tails StreamTable::end_attempt() {
  for (const auto& [id, pipe] : pipes_)
    if (!pipe->is_over && pipe->has_room()) read_pipe(*pipe);
  LogPump::Tails ends = tails();
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
  mark_over();
  return ends;
}

void StreamTable::mark_over() {
  for (const auto& [id, pipe] : pipes_)
    pipe->is_over = true;
  for (const auto& file : files_)
    file->is_over = true;
  has_ended_streams_ = true;
}

std::size_t StreamTable::count_waiting_ended() const {
  const auto files = std::count_if(files_.begin(), files_.end(),
                                   [](const auto& file) { return file->is_over && file->dirty; });
  const auto pipes = std::count_if(pipes_.begin(), pipes_.end(), [](const auto& pipe) {
    return pipe.second->is_over && !pipe.second->has_room();
  });
  return static_cast<std::size_t>(files + pipes);
}

LogPump::Tails StreamTable::tails() const {
  LogPump::Tails ends;
  for (const auto& [id, pipe] : pipes_)
    if (const auto rank = pipe->tail_of(); rank && pipe->tail() != nullptr && !pipe->is_over)
      ends[*rank] = pipe->tail()->lines(TailLimits{});
  return ends;
}

void StreamTable::close_ended_streams() {
  for (auto next = pipes_.begin(); next != pipes_.end();) {
    const auto entry = next++;
    if (!entry->second->is_over || !entry->second->has_ended) continue;
    close_file_of(*entry->second);
    pipes_.erase(entry);
  }
  const auto is_written = [this](const FollowedFile& file) {
    return std::any_of(pipes_.begin(), pipes_.end(), [&file](const auto& pipe) {
      return pipe.second->file() != nullptr && pipe.second->file()->path() == file.path();
    });
  };
  std::vector<const FollowedFile*> read;
  for (const auto& file : files_)
    if (file->is_over && !file->dirty && !is_written(*file)) read.push_back(file.get());
  for (const FollowedFile* const file : read)
    close_follower(*file);
  for (auto& [path, filtered] : filtered_)
    if (filtered.use_count() == 1) lost_bytes_ += filtered->finish();
  std::erase_if(filtered_, [](const auto& filtered) { return filtered.second.use_count() == 1; });
  has_ended_streams_ =
      std::any_of(files_.begin(), files_.end(), [](const auto& file) { return file->is_over; });
}

void StreamTable::close_follower(const FollowedFile& file) {
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&file](const auto& one) { return one.get() == &file; });
  if (found == files_.end()) return;
  const std::unique_ptr<FollowedFile> follower = std::move(*found);
  files_.erase(found);
  follower->finish();
  if (follower->watch >= 0) ::inotify_rm_watch(inotify_.get(), follower->watch);
}

// A plug-in can make two pipes write to one file. The last of them closes it.
void StreamTable::close_file_of(WorkerPipe& pipe) {
  const auto writes_it = [&pipe](const auto& other) {
    return other.second.get() != &pipe && other.second->file() == pipe.file();
  };
  if (pipe.file() == nullptr || std::any_of(pipes_.begin(), pipes_.end(), writes_it)) return;
  lost_bytes_ += pipe.file()->finish();
  thread_.record_progress();
}

void StreamTable::begin_finishing() {
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
  // An earlier attempt's pipe may still have bytes: the console had no room for them.
  for (const auto& [id, pipe] : pipes_)
    if (pipe->is_over) pipe->stop_waiting();
}

void StreamTable::stop_waiting_for_pipes() {
  for (const auto& [id, pipe] : pipes_)
    pipe->stop_waiting();
}

void StreamTable::skip_given_up() {
  for (const auto& file : files_)
    if (file->output().console.is_given_up()) file->skip_to_end();
}

bool StreamTable::nothing_to_read() const {
  return std::none_of(files_.begin(), files_.end(), [](const auto& file) { return file->dirty; }) &&
         std::all_of(pipes_.begin(), pipes_.end(),
                     [](const auto& pipe) { return pipe.second->is_done(); });
}

bool StreamTable::all_pipes_have_ended() const {
  return std::all_of(pipes_.begin(), pipes_.end(), [](const auto& pipe) {
    return pipe.second->has_ended || pipe.second->is_over;
  });
}

LogPump::Tails StreamTable::end_all() {
  LogPump::Tails ends = tails();
  mark_over();
  close_ended_streams();
  // A process that does not descend from the workers may still write: that is not shown any more.
  while (!files_.empty())
    close_follower(*files_.back());
  consoles_.flush();
  flush();
  close_ended_streams();
  if (const std::int64_t lost = std::exchange(lost_bytes_, 0); lost > 0)
    spdlog::warn(
        "{} bytes of log files were lost, because they could not be written: a line in each file "
        "says where",
        lost);
  return ends;
}

}  // namespace muster
