// Lets a connection wait for an answer that comes later on the same io_context, or never.
#pragma once

#include <optional>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/net/no_throw.h"
#include "base/time.h"

namespace muster::http {

/// Shared by the waiting coroutine and the code that delivers the answer: either may end first.
template <typename Answer>
class AnswerWaiter {
 public:
  explicit AnswerWaiter(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  /// To be called at most once, before or during wait().
  void deliver(Answer answer) {
    answer_ = std::move(answer);
    timer_.cancel();
  }
  /// Returns the answer, or std::nullopt if it has not come in time.
  boost::asio::awaitable<std::optional<Answer>> wait(Duration within) {
    timer_.expires_after(within);
    if (!answer_) co_await timer_.async_wait(kNoThrow);
    co_return std::move(answer_);
  }

 private:
  boost::asio::steady_timer timer_;
  std::optional<Answer> answer_;
};

}  // namespace muster::http
