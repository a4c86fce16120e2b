#include "rendezvous/node/reach_client.h"

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/client/store_exchange.h"
#include "rendezvous/node/token_ask.h"

namespace muster {

namespace asio = boost::asio;

asio::awaitable<std::optional<NativeReached>> ask_reach(asio::any_io_executor executor,
                                                        StoreAddress store, NativeReach question,
                                                        Duration limit, SharedTokenCrypto token) {
  StoreClientOptions options{.host = store.addr,
                             .port = store.port,
                             .timeout = limit,
                             .resolve_timeout = limit,
                             .reply_timeout = limit,
                             .retry = false,
                             .reply_bytes = kMaxNativeBytes};
  // This coroutine must own the exchange: it must outlive its own timeouts.
  const auto exchange = std::make_shared<StoreExchange>(executor, std::move(options));
  if (const auto ec = co_await exchange->connect(); ec) co_return std::nullopt;
  NativeRequest request = std::move(question);
  const TokenAnswer reply = co_await ask_with_token(*exchange, token.get(), std::move(request));
  if (reply.error) co_return std::nullopt;
  exchange->close();
  const auto message = decode_native_message(reply.json);
  if (!message) co_return std::nullopt;
  const auto* reached = std::get_if<NativeReached>(&*message);
  if (reached == nullptr) co_return std::nullopt;
  if (reply.claim && !reply.claim->is_host(reached->proof)) co_return std::nullopt;
  co_return *reached;
}

}  // namespace muster
