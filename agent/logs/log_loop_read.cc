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

// A worker that writes line by line would wake us for each: this often at most.
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

void LogLoop::read_files(Instant now) {
  if (now >= polled_ + kPollInterval) {
    for (const auto& file : files_)
      if (file->must_be_polled()) file->dirty = true;
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
}

// Or as far as the console takes it: what follows may be dropped unseen.
void LogLoop::read_to_end(FollowedFile& file) {
  std::vector<char> buffer(64 << 10);  // buffer_ may hold what a pipe is being read for.
  const std::string_view time = file.needs_time() ? time_text() : std::string_view();
  do {
    if (!has_room(file.output())) break;
    file.dirty = file.read(kBytesPerTurn, now(), time, buffer);
    file.output().console.flush();
  } while (file.dirty);
}

FollowedFile* LogLoop::follower_of(const std::string& path) const {
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&path](const auto& file) { return file->path() == path; });
  return found == files_.end() ? nullptr : found->get();
}

// The log thread writes the file itself: it tells the followers what it does.
void LogLoop::connect(LogFile& file) {
  const auto each = [this, path = file.path()](const auto& act) {
    for (const auto& follower : files_)
      if (follower->path() == path) act(*follower);
  };
  file.set_reader(
      {.offset =
           [each] {
             std::int64_t offset = LogFile::kAllRead;
             each([&offset](const FollowedFile& one) { offset = std::min(offset, one.offset()); });
             return offset;
           },
       .read_on = [this, each] { each([this](FollowedFile& one) { read_to_end(one); }); },
       .removed =
           [this, each](const LogRange& range) {
             each([&](FollowedFile& one) {
               one.removed(range, one.needs_time() ? time_text() : std::string_view());
             });
           },
       .written =
           [this, each](std::string_view bytes, std::int64_t at) {
             each([&](FollowedFile& one) { show_written(one, bytes, at); });
           },
       .unwritten =
           [this, each](std::string_view bytes) {
             each([&](FollowedFile& one) {
               read_to_end(one);
               one.show(bytes, now(), one.needs_time() ? time_text() : std::string_view());
             });
           },
       .skipped =
           [each](std::int64_t bytes) { each([&](FollowedFile& one) { one.skip(bytes); }); }});
}

// A follower that has come so far need not read the bytes back.
void LogLoop::show_written(FollowedFile& file, std::string_view bytes, std::int64_t at) {
  if (file.dirty || file.offset() != at || !has_room(file.output())) {
    file.dirty = true;
    return;
  }
  file.show(bytes, now(), file.needs_time() ? time_text() : std::string_view());
  file.skip(static_cast<std::int64_t>(bytes.size()));
  file.output().console.flush();
}

// Of a full log disk, the bytes go to the console alone: they wait for it.
bool LogLoop::has_room_for(const WorkerPipe& pipe) const {
  if (pipe.output() != nullptr && !has_room(*pipe.output())) return false;
  if (pipe.file() == nullptr || !pipe.file()->is_missing_bytes()) return true;
  FollowedFile* const follower = follower_of(pipe.file()->path());
  return follower == nullptr || has_room(follower->output());
}

void LogLoop::read_pipe(std::uint64_t id) {
  const auto found = pipes_.find(id);
  if (found == pipes_.end()) return;
  WorkerPipe& pipe = *found->second;
  if (!has_room_for(pipe)) return;  // Another stream of this turn has filled it.
  read_pipe(pipe);
  if (pipe.output() != nullptr) pipe.output()->console.flush();
  if (!pipe.has_ended) return;
  set_interest(pipe.fd(), id, pipe.interest, 0);
  if (pipe.is_over) ends_streams_ = true;
}

void LogLoop::read_pipe(WorkerPipe& pipe) {
  if (pipe.has_ended) return;
  pipe.has_ended = pipe.read(kBytesPerTurn, buffer_) == WorkerPipe::State::Ended;
}

}  // namespace muster
