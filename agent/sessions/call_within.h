// An asynchronous call that ends within a time limit, also if the other side never answers.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/time.h"

namespace muster {

/// Calls `start(finish)`. Calls `done` once: when `finish` is called, or after `limit`. `finish`
/// may be called at any time on the loop, also after the limit or twice.
inline void call_within(boost::asio::io_context& loop, Duration limit, std::function<void()> done,
                        const std::function<void(std::function<void()>)>& start) {
  struct Call {
    boost::asio::steady_timer limit;
    std::function<void()> done;
  };
  const auto call =
      std::make_shared<Call>(Call{boost::asio::steady_timer(loop, limit), std::move(done)});
  const auto finish = [call] {
    call->limit.cancel();
    if (const auto end = std::exchange(call->done, nullptr)) end();
  };
  call->limit.async_wait([finish](const boost::system::error_code& ec) {
    if (!ec) finish();
  });
  start(finish);
}

}  // namespace muster
