#include "agent/logs/log_mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

namespace muster {

LogMailbox::LogMailbox() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_.is_open()) error_ = errno;
}

LogMailbox::~LogMailbox() {
  while (take()) {
  }
}

void LogMailbox::post(std::function<void(LogLoop&)> act) {
  push(new LogMessage{.act = std::move(act), .own = {}});
}

void LogMailbox::print(LogStream stream, std::string text, Keep keep) {
  const bool is_full = text_bytes_.load() + text.size() > kMaxWaitingTextBytes;
  if (is_full && keep == Keep::IfThereIsRoom) {
    ++dropped_;
    return;
  }
  text_bytes_ += text.size();
  push(new LogMessage{.act = {}, .own = {stream, std::move(text), keep}});
}

void LogMailbox::push(LogMessage* message) {
  message->next = newest_.load();
  while (!newest_.compare_exchange_weak(message->next, message)) {
  }
  // EAGAIN is no error: the counter is at its maximum, so the reader wakes up anyway.
  const std::uint64_t one = 1;
  while (::write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

std::unique_ptr<LogMessage> LogMailbox::take() {
  std::unique_ptr<LogMessage> message(oldest_.exchange(nullptr));
  if (!message) {
    std::uint64_t count = 0;
    while (::read(event_.get(), &count, sizeof count) < 0 && errno == EINTR) {
    }
    LogMessage* oldest = nullptr;
    for (LogMessage* next = newest_.exchange(nullptr); next != nullptr;) {
      LogMessage* const one = std::exchange(next, next->next);
      one->next = std::exchange(oldest, one);
    }
    message.reset(oldest);
  }
  if (!message) return nullptr;
  oldest_.store(std::exchange(message->next, nullptr));
  text_bytes_ -= message->own.text.size();
  return message;
}

}  // namespace muster
