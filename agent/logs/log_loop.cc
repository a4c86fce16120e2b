#include "agent/logs/log_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/from_errno.h"
#include "base/system/clock.h"

namespace muster {
namespace {

// The ids in the interest set, with those of StreamTable.
constexpr std::uint64_t kMailbox = 0;
constexpr std::uint64_t kFirstConsole = 2;
static_assert(kMailbox < StreamTable::kInotify && StreamTable::kInotify < kFirstConsole &&
              kFirstConsole + 2 <= StreamTable::kFirstPipe);

constexpr Duration kLongWait = std::chrono::hours(1);
// How long a flush tries again to write to a console that returns ENOSPC or EIO.
constexpr Duration kFailingLimit = std::chrono::seconds(5);

}  // namespace

Result<std::unique_ptr<LogLoop>> LogLoop::open(const LogPump::Options& options,
                                               std::shared_ptr<LogMailbox> mailbox) {
  auto set = InterestSet::open();
  if (!set) return set.error();
  std::unique_ptr<LogLoop> loop(new LogLoop(options, std::move(mailbox), *std::move(set)));
  if (const int error = loop->consoles_.open_error()) return from_errno(error);
  std::uint32_t interest = 0;
  if (!loop->set_.set(loop->mailbox_->fd(), kMailbox, interest, EPOLLIN)) return from_errno(errno);
  return loop;
}

LogLoop::LogLoop(const LogPump::Options& options, std::shared_ptr<LogMailbox> mailbox,
                 InterestSet set)
    : mailbox_(std::move(mailbox)),
      set_(std::move(set)),
      consoles_(options.stdout_fd, options.stderr_fd),
      muster_lines_(consoles_),
      streams_(consoles_, set_, thread_) {}

bool LogLoop::run() {
  thread_.begin();
  while (!stopped_ && !abandoned_) {
    const Instant before = now();
    streams_.update_interests(before);
    consoles_.update_interests(set_, kFirstConsole);
    wait();
    const Instant time = now();
    streams_.read(time, !finishing_);
    if (std::exchange(has_mail_, false)) read_mailbox();
    streams_.expire(time);
    flush();
    advance_attempt_end();
    advance_catching_up(time);
    advance_finishing(time);
    advance_flushing(time);
  }
  thread_.rest();
  return all_done_;
}

void LogLoop::wait() {
  const Instant before = now();
  const Duration left = std::max(Duration(0), next_turn(before) - before);
  thread_.rest();
  const auto events = set_.wait(left, streams_.events_max());
  thread_.record_progress();
  streams_.begin_turn();
  for (const epoll_event& event : events) {
    if (event.data.u64 == kMailbox) has_mail_ = true;
    // The consoles' events need no more: each turn flushes the consoles.
    streams_.on_event(event.data.u64);
  }
}

Instant LogLoop::next_turn(Instant now) const {
  Instant next = streams_.next_turn(now, now + kLongWait);
  next = consoles_.next_flush(now, next);
  if (const auto held = muster_lines_.held_until()) next = std::min(next, *held);
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
      muster_lines_.print(std::move(message->own));
      continue;
    }
    consoles_.flush();  // The call below may take long.
    message->act(*this);
    thread_.record_progress();
  }
  muster_lines_.count_dropped(mailbox_->take_dropped());
  consoles_.flush();
}

void LogLoop::flush() {
  consoles_.flush();
  streams_.flush();
}

// --- muster's lines below the workers' output ------------------------------------------------

void LogLoop::catch_up(Instant deadline) {
  streams_.catch_up();
  muster_lines_.hold_until(deadline);
}

void LogLoop::advance_catching_up(Instant now) {
  if (!muster_lines_.held_until()) return;
  if (streams_.is_behind() && !hurried_ && muster_lines_.must_hold(now)) return;
  muster_lines_.release();
  flush();
}

// --- the end of an attempt -------------------------------------------------------------------

void LogLoop::end_attempt(std::function<void(const LogPump::Tails&)> done) {
  attempt_ended_ = [done = std::move(done), ends = streams_.end_attempt()] { done(ends); };
}

// Called after the streams were read: a file whose console has no room is still dirty, so it is not
// closed.
void LogLoop::advance_attempt_end() {
  streams_.close_ended();
  if (!attempt_ended_ || streams_.count_waiting_ended() > LogPump::kEndedStreamsMax) return;
  if (const auto done = std::exchange(attempt_ended_, nullptr); !abandoned_) done();
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
  streams_.begin_finishing();
}

void LogLoop::flush_all(std::function<void(ShownReport)> done) {
  flushing_ = Flushing{std::move(done), now()};
  if (!ending_since_) ending_since_ = now();
}

void LogLoop::hurry() {
  hurried_ = true;
  flush();
  consoles_.give_up_unwritten();
  streams_.skip_given_up();
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

void LogLoop::advance_finishing(Instant now) {
  if (stop_deadline_ && now >= *stop_deadline_ && !hurried_) hurry();
  if (!finishing_) return;
  // A process may still hold a pipe: the bytes already in it are read, and no more are waited for.
  if ((hurried_ || now >= finishing_->pipes_deadline) &&
      !std::exchange(finishing_->pipes_are_late, true))
    streams_.stop_waiting_for_pipes();
  if (!streams_.nothing_to_read()) return;
  const Finishing finished = std::move(*finishing_);
  finishing_.reset();
  FinishReport report;
  report.all_read = streams_.all_pipes_have_ended();
  report.stderr_tails = streams_.end_all();
  muster_lines_.release();
  if (!abandoned_) finished.done(report);
}

// --- the wait for the consoles ---------------------------------------------------------------

void LogLoop::advance_flushing(Instant now) {
  if (ending_since_ && now >= *ending_since_ + kExplainAfter && !std::exchange(wait_logged_, true))
    log_wait();
  if (!flushing_) return;
  if (now - flushing_->begun >= kFailingLimit) consoles_.give_up_failing();
  if (finishing_ || !mailbox_->is_empty() || !consoles_.all_shown()) return;
  muster_lines_.print_losses();
  const ShownReport report{.lost_bytes = consoles_.lost_bytes()};
  const Flushing flushed = std::move(*flushing_);
  flushing_.reset();
  ending_since_.reset();
  if (!abandoned_) flushed.done(report);
}

// The line goes to stderr, so it makes sense only if the loop waits for another console.
void LogLoop::log_wait() const {
  const LogConsole& out = consoles_.of(LogStream::Out).console;
  if (consoles_.size() < 2 || out.unwritten_bytes() == 0) return;
  spdlog::warn("waiting {}: {} bytes are left (another signal ends muster without them)",
               out.is_failing() ? "until stdout can be written" : "for stdout to be read",
               out.unwritten_bytes());
}

}  // namespace muster
