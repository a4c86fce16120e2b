// How the log thread reads: which files have changed, and which stream has its turn.
#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>

#include "agent/logs/log_loop.h"
#include "rendezvous/net/clock.h"

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
    if (!file->dirty || !file->output().has_room()) continue;
    any = true;
    file->dirty = file->read(now, buffer_);
    more = more || file->dirty;
    file->output().console.flush();
    record_progress();
  }
  if (any && !more && !finishing_) files_resume_ = now + kFilesPause;
}

void LogLoop::read_pipe(std::uint64_t id) {
  const auto found = pipes_.find(id);
  if (found == pipes_.end()) return;
  WorkerPipe& pipe = *found->second;
  if (!pipe.has_room()) return;  // Another stream of this turn has filled the console.
  read_pipe(pipe);
  if (pipe.output() != nullptr) pipe.output()->console.flush();
  if (!pipe.has_ended) return;
  set_interest(pipe.fd(), id, pipe.interest, 0);
  if (pipe.is_over) has_ended_streams_ = true;
}

void LogLoop::read_pipe(WorkerPipe& pipe) {
  if (pipe.has_ended) return;
  pipe.has_ended = pipe.read(buffer_) == WorkerPipe::State::Ended;
  record_progress();
}

}  // namespace muster
