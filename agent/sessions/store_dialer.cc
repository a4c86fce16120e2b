#include "agent/sessions/store_dialer.h"

#include <algorithm>
#include <utility>

#include "base/net/name_lookup.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// The limit of one try, from SYN to the store's answer. It doubles while a store is silent, because
// a torch server looks up its clients' names before it answers.
constexpr Duration kTryTimeoutFirst = std::chrono::seconds(5);
constexpr Duration kMaxTryTimeout = std::chrono::seconds(40);
// The limit of waits for keys that are there. It does not depend on the time that was left for the
// try that made the connection.
constexpr Duration kWaitTimeout = std::chrono::seconds(5);
constexpr Duration kResolveWithin = std::chrono::seconds(15);
constexpr Duration kMeaningfulTry = std::chrono::seconds(1);

}  // namespace

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

StoreDialer::StoreDialer(const asio::any_io_executor& executor, Target target)
    : executor_(executor),
      target_(std::move(target)),
      pause_(executor),
      try_timeout_(kTryTimeoutFirst) {}

void StoreDialer::close() {
  closed_ = true;
  if (connecting_) connecting_->close();
  pause_.cancel();
}

asio::awaitable<std::shared_ptr<StoreClient>> StoreDialer::try_all(Instant deadline) {
  std::string host = target_.host;
  const Duration resolve_within = left_until(deadline, kResolveWithin);
  const NameLookup found = co_await look_up(std::move(host), resolve_within);
  if (found.addresses.empty()) last_error_ = target_.host + ": " + found.error.message();
  bool silent = false;
  for (const std::string& address : found.addresses) {
    if (closed_) break;
    StoreClientOptions options{.host = address,
                               .port = target_.port,
                               .timeout = left_until(deadline, try_timeout_),
                               .wait_timeout = kWaitTimeout,
                               .reply_timeout = target_.reply_timeout,
                               .retry = false};
    const Instant tried_at = now();
    connecting_ = std::make_shared<StoreClient>(executor_, std::move(options));
    const auto done = co_await connecting_->connect();
    const auto client = std::exchange(connecting_, nullptr);
    if (done && !closed_) co_return client;
    // The error of a try that had less than a second does not replace an earlier error.
    const bool hurried = done.has_error() && now() - tried_at < kMeaningfulTry &&
                         done.error() == StoreErrc::ConnectTimedOut && !last_error_.empty();
    if (!done && !hurried) {
      last_error_ = endpoint_text(address, target_.port) + ": " + done.error().message();
      silent = silent || done.error() == StoreErrc::ConnectTimedOut;
    }
  }
  if (silent) try_timeout_ = std::min(2 * try_timeout_, kMaxTryTimeout);
  co_return nullptr;
}

asio::awaitable<std::shared_ptr<StoreClient>> StoreDialer::dial(Instant deadline) {
  pause_.reset();
  try_timeout_ = kTryTimeoutFirst;
  while (!closed_) {
    auto client = co_await try_all(deadline);
    if (client) co_return client;
    if (closed_) break;
    co_await pause_.wait(deadline);
    if (now() >= deadline) break;
  }
  co_return nullptr;
}

}  // namespace muster
