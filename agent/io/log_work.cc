#include "agent/io/log_work.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "agent/io/own_lines.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

LogWork::LogWork(asio::io_context& io, std::string folder, Duration reader_limit)
    : io_(io),
      place_(folder.empty() ? "a temporary folder" : std::move(folder)),
      periodic_check_(io, kExplainAfter, [this] { return check(); }),
      reader_limit_(std::max(reader_limit, kHungLimitAfterSignal)) {}

boost::system::error_code LogWork::start() {
  auto pump = LogPump::start({});
  if (!pump) return pump.error();
  pump_ = std::move(*pump);
  lines_ = std::make_shared<OwnLines>(pump_->mailbox());
  spdlog::default_logger()->sinks() = {lines_};
  return {};
}

void LogWork::step(const std::function<void(LogPump&, Answer)>& begin,
                   std::function<void(bool)> done) {
  const std::uint64_t number = ++step_;
  done_ = std::move(done);
  if (is_dead_) return asio::post(io_, [this] { finish_step(false); });
  begin(*pump_, [this, number] { asio::post(io_, [this, number] { answered(number); }); });
  periodic_check_.begin();
}

void LogWork::run(std::function<void()> job, std::function<void(bool)> done) {
  step([job = std::move(job)](LogPump& pump, Answer answer) { pump.run(job, std::move(answer)); },
       std::move(done));
}

void LogWork::answered(std::uint64_t number) {
  if (number == step_ && done_) finish_step(true);
}

void LogWork::finish_step(bool answered) {
  periodic_check_.stop();
  ++step_;  // answered() ignores a late answer of this step.
  if (const auto done = std::exchange(done_, nullptr)) done(answered);
}

bool LogWork::check() {
  if (!done_) return false;
  const Duration blocked = pump_->blocked_for();
  if (blocked >= kExplainAfter && !std::exchange(hang_reported_, true)) report_hang();
  if (ending_ && blocked >= (signalled_ ? kHungLimitAfterSignal : kHungLimit)) {
    abandon_pump();
    return false;
  }
  // Whoever has stopped the job waits for its end.
  if (signalled_ && ended_at_ && now() - *ended_at_ >= reader_limit_) pump_->hurry();
  return true;
}

void LogWork::job_ends() {
  ending_ = true;
  ended_at_ = now();
}

void LogWork::on_signal() {
  signalled_ = true;
  if (!ending_ || is_dead_) return;
  pump_->hurry();
  if (done_ && is_hung()) abandon_pump();
}

void LogWork::report_hang() {
  if (!second_)
    if (auto second = LogPump::start({})) second_ = std::move(*second);
  if (!second_) return;
  second_->print(LogStream::Err,
                 "muster: storage does not answer, and muster waits for it: " + place_ + "\n");
}

// The thread holds descriptors and perhaps a lock of the kernel. Nothing waits for it any more.
void LogWork::abandon_pump() {
  if (!std::exchange(hang_reported_, true)) report_hang();
  const auto lines = pump_->abandon();
  if (second_) {
    pump_ = std::move(second_);
    lines_->route_to(pump_->mailbox());
    pump_->print(LogStream::Err,
                 "muster: storage does not answer: muster ends without it, and what it would have "
                 "written and shown is lost: " +
                     place_ + "\n");
    for (const auto& line : lines)
      pump_->print(line->own.stream, line->own.text, line->own.keep);
  } else {
    is_dead_ = true;
  }
  finish_step(false);
}

}  // namespace muster
