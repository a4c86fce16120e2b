#include "agent/io/own_lines.h"

#include <mutex>
#include <utility>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

namespace muster {

class OwnLinesSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
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

void OwnLines::route_to(std::shared_ptr<LogMailbox> mailbox) {
  if (sink_) return sink_->route_to(std::move(mailbox));
  sink_ = std::make_shared<OwnLinesSink>();
  sink_->set_pattern(kOwnLinePattern);
  sink_->route_to(std::move(mailbox));
  spdlog::default_logger()->sinks() = {sink_};
}

}  // namespace muster
