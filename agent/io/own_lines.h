// The spdlog sink for muster's own lines on stderr. It never waits for the console.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include <spdlog/sinks/base_sink.h>

#include "agent/logs/log_mailbox.h"
#include "base/system/log_line.h"

namespace muster {

/// Sends the log lines of every thread of the agent to the log thread, which owns the console.
class OwnLines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit OwnLines(std::shared_ptr<LogMailbox> mailbox) : mailbox_(std::move(mailbox)) {
    set_pattern(kLogLinePattern);
  }

  /// May be called at any time, on any thread.
  void route_to(std::shared_ptr<LogMailbox> mailbox) {
    const std::scoped_lock lock(mutex_);  // spdlog calls sink_it_ with it held.
    mailbox_ = std::move(mailbox);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    mailbox_->print(LogStream::Err, {line.data(), line.size()});
  }
  void flush_() override {}

 private:
  std::shared_ptr<LogMailbox> mailbox_;
};

}  // namespace muster
