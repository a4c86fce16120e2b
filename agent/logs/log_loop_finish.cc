// The log thread at the end of an attempt: the last lines are read and shown, or the time is up.
#include <sys/inotify.h>

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/logs/log_loop.h"

namespace muster {

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

void LogLoop::catch_up(Instant deadline, std::function<void()> done) {
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
  for (auto& [id, tap] : taps_) {
    if (tap->has_ended) continue;
    tap->is_behind = true;
    if (tap->output() == nullptr || has_room(*tap->output()))
      tap->has_ended = tap->read(kBytesPerTurn, buffer_) == TappedPipe::State::Ended;
  }
  for (auto& [id, tap] : taps_)
    if (tap->has_ended) set_interest(tap->fd(), id, tap->interest, 0);
  std::erase_if(taps_,
                [](const auto& tap) { return tap.second->has_ended && !tap.second->worker; });
  catching_up_.push_back({deadline, std::move(done)});
}

bool LogLoop::is_behind() const {
  return std::any_of(files_.begin(), files_.end(), [](const auto& file) { return file->dirty; }) ||
         std::any_of(taps_.begin(), taps_.end(), [](const auto& tap) {
           return tap.second->is_behind && !tap.second->has_ended;
         });
}

bool LogLoop::all_shown() const {
  return std::all_of(outputs_.begin(), outputs_.end(),
                     [](const auto& output) { return output->console.unwritten_bytes() == 0; });
}

// In their order; and none is left for later, when finish() is over.
void LogLoop::advance_catching_up(Instant now) {
  const bool caught_up = !catching_up_.empty() && !is_behind() && all_shown();
  while (!catching_up_.empty() && (caught_up || now >= catching_up_.front().deadline)) {
    const CatchingUp one = std::move(catching_up_.front());
    catching_up_.erase(catching_up_.begin());
    if (!abandoned_) one.done();
  }
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
  finishing.report.all_shown = all_shown();
  if (!finishing.report.all_shown && !late) return;
  const Finishing finished = std::move(finishing);
  finishing_.reset();
  advance_catching_up(Instant::max());
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

}  // namespace muster
