// Lets a connection wait for an answer that comes later on the same io_context, or never.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
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

/// A completion for another thread, to be called at most once: posts the answer to `loop`, on which
/// `waiter` waits. It holds only a weak reference, because the other thread may end later than
/// `loop`. An answer that comes after its waiter has ended is dropped.
template <typename Answer>
std::function<void(Answer)> posted_to(boost::asio::io_context& loop,
                                      const std::shared_ptr<AnswerWaiter<Answer>>& waiter) {
  return [&loop, weak = std::weak_ptr(waiter)](Answer answer) {
    boost::asio::post(loop, [weak, answer = std::move(answer)]() mutable {
      if (const auto still_waits = weak.lock()) still_waits->deliver(std::move(answer));
    });
  };
}

}  // namespace muster::http
