// How the log thread reads: which files have changed, and which stream has its turn.
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "agent/logs/log_loop.h"
#include "base/system/clock.h"

namespace muster {
namespace {

// The least time between two reads of files. Otherwise a worker that writes line by line would wake
// the thread for each line.
constexpr Duration kFilesPause = std::chrono::milliseconds(2);

}  // namespace

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
  }
}

// Streams take turns: a stream that fills a console goes to the end of the queue. So while a stream
// has bytes and waits for room, no other stream can fill its console twice.
void LogLoop::read_streams(Instant now) {
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
    if (a_console_is_full()) *place = ++last_place_;
    any = any || file != nullptr;
    more = more || (file != nullptr && file->dirty);
  }
  if (any && !more && !finishing_) files_resume_ = now + kFilesPause;
}

bool LogLoop::a_console_is_full() const {
  return std::any_of(outputs_.begin(), outputs_.end(),
                     [](const auto& output) { return !output->has_room(); });
}

bool LogLoop::read_file(FollowedFile& file, Instant now) {
  if (!file.dirty || !file.output().has_room()) return false;
  file.dirty = file.read(now, buffer_);
  file.output().console.flush();
  record_progress();
  return true;
}

bool LogLoop::read_pipe(std::uint64_t id) {
  const auto found = pipes_.find(id);
  if (found == pipes_.end()) return false;
  WorkerPipe& pipe = *found->second;
  if (!pipe.has_room()) return false;  // Another stream of this turn has filled the console.
  read_pipe(pipe);
  if (pipe.output() != nullptr) pipe.output()->console.flush();
  if (!pipe.has_ended) return true;
  set_interest(pipe.fd(), id, pipe.interest, 0);
  if (pipe.is_over) has_ended_streams_ = true;
  return true;
}

void LogLoop::read_pipe(WorkerPipe& pipe) {
  if (pipe.has_ended) return;
  pipe.has_ended = pipe.read(buffer_) == WorkerPipe::State::Ended;
  record_progress();
}

}  // namespace muster
