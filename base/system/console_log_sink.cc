#include "base/system/console_log_sink.h"

#include <string>
#include <system_error>

#include "base/system/thread_without_signals.h"
#include "base/system/wait_for_room.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the thread waits for room before it looks whether it must end, and how long it pauses
/// before it tries again to write to a full disk.
constexpr int kPauseMs = 500;

// The log itself is what cannot be written.
void report_nothing(const std::string& /*text*/) {}

}  // namespace

ConsoleLogSink::ConsoleLogSink(int fd) : console_(fd, report_nothing) {
  console_.limit_kept_bytes();
}

ConsoleLogSink::~ConsoleLogSink() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ConsoleLogSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  console_.buffer().append(line.data(), line.size());
  console_.flush();
  if (console_.unwritten_bytes() > 0) write_later();
}

void ConsoleLogSink::write_later() {
  try {
    if (!thread_.joinable())
      thread_ = thread_without_signals([this] { write_when_there_is_room(); });
  } catch (const std::system_error&) {
    return;  // The system allows no further thread: the next line tries again.
  }
  changed_.notify_all();
}

void ConsoleLogSink::write_when_there_is_room() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (console_.unwritten_bytes() == 0) {
      changed_.wait(lock);
      continue;
    }
    if (console_.is_failing()) {
      changed_.wait_for(lock, std::chrono::milliseconds(kPauseMs), [this] { return ending_; });
    } else {
      lock.unlock();
      wait_for_room(console_.fd(), kPauseMs);
      lock.lock();
    }
    console_.flush();
  }
}

/// Called while mutex_ is held, at the end of the program: no other thread needs the log then.
void ConsoleLogSink::flush_() {
  const auto end = Clock::now() + kFlushWithin;
  console_.flush();
  while (console_.unwritten_bytes() > 0 && !console_.is_failing()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) break;
    wait_for_room(console_.fd(), static_cast<int>(left));
    console_.flush();
  }
}

}  // namespace muster
