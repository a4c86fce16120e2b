#include "agent/sessions/hosted_store.h"

#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/net/no_throw.h"

namespace muster {

namespace asio = boost::asio;

namespace {

struct Answer {
  explicit Answer(const asio::any_io_executor& executor) : limit(executor) {}
  asio::steady_timer limit;
  std::optional<Result<HostedStore>> result;
};

}  // namespace

asio::awaitable<Result<HostedStore>> hosted_store(asio::any_io_executor executor, HostStore host,
                                                  Duration limit) {
  const auto timed_out = make_error_code(boost::system::errc::timed_out);
  if (!host) co_return timed_out;
  const auto answer = std::make_shared<Answer>(executor);
  answer->limit.expires_after(limit);
  host([answer, executor](const HostedStoreResult& store) {
    asio::post(executor, [answer, store] {
      if (store)
        answer->result = *store;
      else
        answer->result = store.error().code;
      answer->limit.cancel();
    });
  });
  co_await answer->limit.async_wait(kNoThrow);
  const auto& result = answer->result;
  if (!result) co_return timed_out;
  co_return *result;
}

}  // namespace muster
