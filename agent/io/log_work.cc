#include "agent/io/log_work.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace muster {

namespace asio = boost::asio;

LogWork::LogWork(asio::io_context& io, std::string place)
    : io_(io), place_(std::move(place)), look_(io, kSayAfter, [this] { return look(); }) {}

boost::system::error_code LogWork::start() {
  auto pump = LogPump::start({});
  if (!pump) return pump.error();
  pump_ = std::move(*pump);
  lines_.route_to(pump_->mailbox());
  return {};
}

void LogWork::step(const std::function<void(LogPump&, Answer)>& begin,
                   std::function<void(bool)> done) {
  const std::uint64_t number = ++step_;
  done_ = std::move(done);
  if (is_dead_) return asio::post(io_, [this] { finish_step(false); });
  begin(*pump_, [this, number] { asio::post(io_, [this, number] { answered(number); }); });
  look_.begin();
}

void LogWork::run(std::function<void()> job, std::function<void(bool)> done) {
  step([job = std::move(job)](LogPump& pump, Answer answer) { pump.run(job, std::move(answer)); },
       std::move(done));
}

void LogWork::answered(std::uint64_t number) {
  if (number == step_ && done_) finish_step(true);
}

void LogWork::finish_step(bool answered) {
  look_.stop();
  ++step_;  // A late answer counts no more.
  if (const auto done = std::exchange(done_, nullptr)) done(answered);
}

bool LogWork::look() {
  if (!done_) return false;
  const Duration busy = pump_->busy_for();
  if (busy >= kSayAfter && !std::exchange(has_said_, true)) say_that_it_hangs();
  if (ending_ && busy >= (signalled_ ? kHungLimitAfterSignal : kHungLimit)) {
    leave_behind();
    return false;
  }
  return true;
}

void LogWork::job_ends() {
  ending_ = true;
}

void LogWork::on_signal() {
  signalled_ = true;
  if (!ending_ || is_dead_) return;
  pump_->hurry();
  if (done_ && is_hung()) leave_behind();
}

void LogWork::say_that_it_hangs() {
  if (!second_)
    if (auto second = LogPump::start({})) second_ = std::move(*second);
  if (!second_) return;
  second_->say(LogStream::Err,
               "muster: storage does not answer, and muster waits for it: " + place_ + "\n");
}

// Its thread holds descriptors and perhaps a lock of the kernel; nothing waits for it any more.
void LogWork::leave_behind() {
  if (!std::exchange(has_said_, true)) say_that_it_hangs();
  const auto lines = pump_->abandon();
  if (second_) {
    pump_ = std::move(second_);
    lines_.route_to(pump_->mailbox());
    pump_->say(LogStream::Err,
               "muster: storage does not answer: muster ends without it, and what it would have "
               "written and shown is lost: " +
                   place_ + "\n");
    for (const auto& line : lines)
      pump_->say(line->stream, line->text);
  } else {
    is_dead_ = true;
  }
  finish_step(false);
}

}  // namespace muster
