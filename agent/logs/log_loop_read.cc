// The log thread's reading: what has changed, and what of it has its turn.
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "agent/logs/log_loop.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

using std::chrono::milliseconds;

// A worker that writes line by line would wake us for each: this many at most.
constexpr Duration kFilesPause = milliseconds(2);
constexpr Duration kKeepPause = milliseconds(20);  // The same, where nobody wants to see them.

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
  const auto read_on = [&] { return follower == nullptr ? read_to : read_to_end(*follower); };
  const auto removal = is_full ? space.make_room(read_on()) : space.look(read_to, read_on);
  if (!removal) return false;
  space.dirty = true;  // There may be more to do.
  if (follower != nullptr)
    follower->removed(*removal, follower->needs_time() ? time_text() : std::string_view());
  return true;
}

// Or as far as the console takes it: what follows may be dropped unseen.
std::int64_t LogLoop::read_to_end(FollowedFile& file) {
  std::vector<char> buffer(64 << 10);  // buffer_ may hold what a pipe is being read for.
  const std::string_view time = file.needs_time() ? time_text() : std::string_view();
  do {
    if (!has_room(file.output())) break;
    file.dirty = file.read(kBytesPerTurn, now(), time, buffer);
    file.output().console.flush();
  } while (file.dirty);
  return file.offset();
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

}  // namespace muster
