#include "rendezvous/node/token_ask.h"

#include <memory>
#include <utility>

namespace muster {

namespace asio = boost::asio;

namespace {

void set_nonce(NativeRequest& request, const std::string& nonce) {
  if (auto* hello = std::get_if<NativeHello>(&request)) hello->nonce = nonce;
  if (auto* reach = std::get_if<NativeReach>(&request)) reach->nonce = nonce;
}

}  // namespace

asio::awaitable<TokenAnswer> ask_with_token(StoreExchange& exchange, const TokenCrypto* crypto,
                                            NativeRequest first) {
  TokenAnswer answer;
  if (crypto != nullptr) {
    answer.claim = std::make_shared<TokenClaim>(*crypto);
    set_nonce(first, answer.claim->nonce());
  }
  std::string frame = encode(first);
  const std::string first_json = frame.substr(1 + kNativeLengthBytes);
  auto reading = exchange.read_text(answer.json);
  answer.error = co_await exchange.ask(std::move(frame), std::move(reading));
  if (answer.error || !answer.claim) co_return answer;
  const auto reply = decode_native_message(answer.json);
  const auto* challenge = reply ? std::get_if<NativeChallenge>(&*reply) : nullptr;
  if (challenge == nullptr) co_return answer;
  const NativeRequest prove = answer.claim->answer(*challenge, first_json);
  std::string proof = encode(prove);
  answer.json.clear();
  auto reading_again = exchange.read_text(answer.json);
  answer.error = co_await exchange.ask(std::move(proof), std::move(reading_again));
  co_return answer;
}

}  // namespace muster
