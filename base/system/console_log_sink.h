// Writes a program's log to stderr without blocking the threads that log.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <spdlog/sinks/base_sink.h>

#include "base/system/log_console.h"

namespace muster {

/// A sink for spdlog. A line is written at once if the console takes it. Otherwise the line waits,
/// and a thread writes it when there is room: a reader that stops reading (a paused terminal, a
/// full pipe) never stops the program. At most LogConsole::kMaxKeptBytes wait. Further lines are
/// dropped, and a line in their place says how many bytes are missing.
///
/// A regular file is written by the caller's thread.
class ConsoleLogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// How long flush() waits for a reader.
  static constexpr std::chrono::seconds kFlushWithin{2};

  explicit ConsoleLogSink(int fd);
  ~ConsoleLogSink() override;

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override;
  void write_later();
  void write_when_there_is_room();

  LogConsole console_;
  std::condition_variable changed_;  // There are unwritten bytes, or ending_ was set.
  bool ending_ = false;
  std::thread thread_;  // Runs from the first line that must wait. Holds mutex_ while it writes.
};

}  // namespace muster
