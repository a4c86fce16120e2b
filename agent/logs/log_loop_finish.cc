// What the log thread does at the end of an attempt and of the job: it reads and shows the last
// lines.
#include <sys/inotify.h>

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/logs/log_loop.h"
#include "base/system/clock.h"

namespace muster {
namespace {

// How long a flush tries again to write to a console that returns ENOSPC or EIO.
constexpr Duration kFailingLimit = std::chrono::seconds(5);
// How long muster's own lines are still held after stderr has room again.
constexpr Duration kHoldMore = std::chrono::milliseconds(100);

}  // namespace

// --- muster's lines below the workers' output ------------------------------------------------

void LogLoop::catch_up(Instant deadline) {
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
  for (const auto& [id, pipe] : pipes_) {
    if (pipe->has_ended) continue;
    pipe->catch_up();
    if (pipe->has_room()) read_pipe(*pipe);
    if (pipe->has_ended) set_interest(pipe->fd(), id, pipe->interest, 0);
  }
  held_until_ = held_until_ ? std::max(*held_until_, deadline) : deadline;
}

// Streams that wait for a stuck stdout do not count: muster's lines go to stderr.
bool LogLoop::is_behind() const {
  const auto counts = [this](const LogOutput* output) {
    return output == nullptr || output == outputs_.back().get() || output->has_room();
  };
  return std::any_of(
             files_.begin(), files_.end(),
             [&counts](const auto& file) { return file->dirty && counts(&file->output()); }) ||
         std::any_of(pipes_.begin(), pipes_.end(), [&counts](const auto& pipe) {
           return pipe.second->is_behind() && counts(pipe.second->output());
         });
}

bool LogLoop::all_shown() const {
  return std::all_of(outputs_.begin(), outputs_.end(),
                     [](const auto& output) { return output->console.unwritten_bytes() == 0; });
}

// Time in which stderr has no room does not count: then muster's lines could not be written,
// either.
void LogLoop::advance_catching_up(Instant now) {
  if (!held_until_) return;
  if (is_behind() && !hurried_) {
    if (!outputs_.back()->has_room()) held_until_ = std::max(*held_until_, now + kHoldMore);
    if (now < *held_until_) return;
  }
  print_held();
  flush();
}

void LogLoop::print_held() {
  held_until_.reset();
  for (const OwnText& own : std::exchange(held_, {}))
    print_now(own);
  held_bytes_ = 0;
}

// --- the end of an attempt -------------------------------------------------------------------

void LogLoop::end_attempt(std::function<void(const LogPump::Tails&)> done) {
  for (const auto& [id, pipe] : pipes_)
    if (!pipe->is_over && pipe->has_room()) read_pipe(*pipe);
  attempt_ended_ = [done = std::move(done), ends = tails()] { done(ends); };
  for (const auto& file : files_)
    file->is_over = file->dirty = true;
  for (const auto& [id, pipe] : pipes_)
    pipe->is_over = true;
  files_resume_ = {};
  has_ended_streams_ = true;
}

std::size_t LogLoop::count_ended_streams() const {
  const auto files = std::count_if(files_.begin(), files_.end(),
                                   [](const auto& file) { return file->is_over && file->dirty; });
  const auto pipes = std::count_if(pipes_.begin(), pipes_.end(), [](const auto& pipe) {
    return pipe.second->is_over && !pipe.second->has_room();
  });
  return static_cast<std::size_t>(files + pipes);
}

LogPump::Tails LogLoop::tails() const {
  LogPump::Tails ends;
  for (const auto& [id, pipe] : pipes_)
    if (const auto rank = pipe->tail_of(); rank && pipe->tail() != nullptr && !pipe->is_over)
      ends[*rank] = pipe->tail()->lines(TailLimits{});
  return ends;
}

// Called after read_streams(): a file whose console has no room is still dirty, so it is not
// closed.
void LogLoop::advance_attempt_end() {
  if (has_ended_streams_) close_ended_streams();
  if (!attempt_ended_ || count_ended_streams() > LogPump::kEndedStreamsMax) return;
  if (const auto done = std::exchange(attempt_ended_, nullptr); !abandoned_) done();
}

void LogLoop::close_ended_streams() {
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
    if (filtered.use_count() == 1) lost_log_bytes_ += filtered->finish();
  std::erase_if(filtered_, [](const auto& filtered) { return filtered.second.use_count() == 1; });
  has_ended_streams_ =
      std::any_of(files_.begin(), files_.end(), [](const auto& file) { return file->is_over; });
}

void LogLoop::close_follower(const FollowedFile& file) {
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&file](const auto& one) { return one.get() == &file; });
  if (found == files_.end()) return;
  const std::unique_ptr<FollowedFile> follower = std::move(*found);
  files_.erase(found);
  follower->finish();
  if (follower->watch >= 0) ::inotify_rm_watch(inotify_.get(), follower->watch);
}

// A plug-in can make two pipes write to one file. The last of them closes it.
void LogLoop::close_file_of(WorkerPipe& pipe) {
  const auto writes_it = [&pipe](const auto& other) {
    return other.second.get() != &pipe && other.second->file() == pipe.file();
  };
  if (pipe.file() == nullptr || std::any_of(pipes_.begin(), pipes_.end(), writes_it)) return;
  lost_log_bytes_ += pipe.file()->finish();
  record_progress();
}

// --- the end of the job ----------------------------------------------------------------------

void LogLoop::finish(Instant pipes_deadline, std::function<void(FinishReport)> done) {
  if (finishing_) {  // stop() has come before finish() was complete: both callbacks are called.
    done = [first = std::move(finishing_->done),
            then = std::move(done)](const FinishReport& report) {
      first(report);
      then(report);
    };
    pipes_deadline = std::min(pipes_deadline, finishing_->pipes_deadline);
  }
  finishing_ = Finishing{pipes_deadline, std::move(done)};
  if (!ending_since_) ending_since_ = now();
  for (const auto& file : files_)
    file->dirty = true;
  files_resume_ = {};
  // An earlier attempt's pipe may still have bytes: the console had no room for them.
  for (const auto& [id, pipe] : pipes_)
    if (pipe->is_over) pipe->stop_waiting();
}

void LogLoop::flush_all(std::function<void(ShownReport)> done) {
  flushing_ = Flushing{std::move(done), now()};
  if (!ending_since_) ending_since_ = now();
}

// Gives up only consoles with unwritten bytes. A console that has accepted all bytes so far is
// kept.
void LogLoop::hurry() {
  hurried_ = true;
  flush();
  for (const auto& output : outputs_)
    if (output->console.unwritten_bytes() > 0) output->console.give_up();
  for (const auto& file : files_)
    if (file->output().console.is_given_up()) file->skip_to_end();
}

void LogLoop::stop(Instant deadline) {
  stop_deadline_ = deadline;
  finish(deadline, [this](const FinishReport& report) {
    all_done_ = report.all_read;
    flush_all([this](const ShownReport& shown) {
      all_done_ = all_done_ && shown.lost_bytes == 0;
      stopped_ = true;
    });
  });
}

bool LogLoop::nothing_to_read() const {
  return std::none_of(files_.begin(), files_.end(), [](const auto& file) { return file->dirty; }) &&
         std::all_of(pipes_.begin(), pipes_.end(),
                     [](const auto& pipe) { return pipe.second->is_done(); });
}

void LogLoop::advance_finishing(Instant now) {
  if (stop_deadline_ && now >= *stop_deadline_ && !hurried_) hurry();
  if (!finishing_) return;
  // A process may still hold a pipe: the bytes already in it are read, and no more are waited for.
  if ((hurried_ || now >= finishing_->pipes_deadline) &&
      !std::exchange(finishing_->pipes_are_late, true))
    for (const auto& [id, pipe] : pipes_)
      pipe->stop_waiting();
  if (!nothing_to_read()) return;
  const Finishing finished = std::move(*finishing_);
  finishing_.reset();
  FinishReport report;
  report.all_read = std::all_of(pipes_.begin(), pipes_.end(), [](const auto& pipe) {
    return pipe.second->has_ended || pipe.second->is_over;
  });
  report.stderr_tails = end_streams();
  print_held();
  if (!abandoned_) finished.done(report);
}

LogPump::Tails LogLoop::end_streams() {
  auto ends = tails();
  for (const auto& [id, pipe] : pipes_)
    pipe->is_over = true;
  for (const auto& file : files_)
    file->is_over = true;
  has_ended_streams_ = true;
  close_ended_streams();
  // A process that does not descend from the workers may still write: that is not shown any more.
  while (!files_.empty())
    close_follower(*files_.back());
  flush();
  close_ended_streams();
  if (const std::int64_t lost = std::exchange(lost_log_bytes_, 0); lost > 0)
    spdlog::warn(
        "{} bytes of log files were lost, because they could not be written: a line in each file "
        "says where",
        lost);
  return ends;
}

// --- the wait for the consoles ---------------------------------------------------------------

void LogLoop::advance_flushing(Instant now) {
  if (ending_since_ && now >= *ending_since_ + kExplainAfter && !std::exchange(wait_logged_, true))
    log_wait();
  if (!flushing_) return;
  const Duration waited = now - flushing_->begun;
  for (const auto& output : outputs_)
    if (output->console.is_failing() && waited >= kFailingLimit) output->console.give_up();
  if (finishing_ || !mailbox_->is_empty()) return;
  if (!all_shown()) return;
  print_losses();
  ShownReport report;
  for (const auto& output : outputs_)
    report.lost_bytes += output->console.lost_bytes();
  const Flushing flushed = std::move(*flushing_);
  flushing_.reset();
  ending_since_.reset();
  if (!abandoned_) flushed.done(report);
}

// The line goes to stderr, so it makes sense only if the loop waits for another console.
void LogLoop::log_wait() {
  const LogConsole& out = outputs_.front()->console;
  if (outputs_.size() < 2 || out.unwritten_bytes() == 0) return;
  spdlog::warn("waiting {}: {} bytes are left (another signal ends muster without them)",
               out.is_failing() ? "until stdout can be written" : "for stdout to be read",
               out.unwritten_bytes());
}

// Called at the end of each flush_all(): prints only what the last call has not printed.
void LogLoop::print_losses() {
  bool any = false;
  printed_losses_.resize(outputs_.size());
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const auto& output = outputs_[i];
    const std::size_t lost = output->console.lost_bytes();
    if (lost == std::exchange(printed_losses_[i], lost)) continue;
    any = true;
    const char* const name = output != outputs_.front() ? "stderr"
                             : outputs_.size() > 1      ? "stdout"
                                                        : "stdout and stderr";
    print_now({LogStream::Err,
               "[muster: " + std::to_string(lost) + " bytes could not be shown on " + name + "]\n",
               Keep::IfThereIsRoom});
  }
  if (dropped_lines_ > 0) {
    any = true;
    print_now({LogStream::Err, {}, Keep::Always});  // Says how many.
  }
  if (any) outputs_.back()->console.give_up();  // There is only one try to write this line.
}

}  // namespace muster
