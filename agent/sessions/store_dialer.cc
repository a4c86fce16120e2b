#include "agent/sessions/store_dialer.h"

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "agent/sessions/name_lookup.h"
#include "rendezvous/net/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
// From SYN to the store's answer. A torch server looks its clients' names up before it answers, so
// that it grows where a store is silent.
constexpr Duration kPatienceFirst = std::chrono::seconds(5);
constexpr Duration kPatienceMost = std::chrono::seconds(40);
constexpr Duration kResolveWithin = std::chrono::seconds(15);
constexpr Duration kWorthTelling = std::chrono::seconds(1);
constexpr Duration kPauseFirst = std::chrono::milliseconds(100);
constexpr Duration kPauseMost = std::chrono::seconds(2);

Duration left_until(std::optional<Instant> deadline, Duration most) {
  if (!deadline) return most;
  return std::clamp(*deadline - now(), Duration::zero(), most);
}

}  // namespace

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Duration jittered(Duration most, std::minstd_rand& random) {
  std::uniform_int_distribution<Duration::rep> time(most.count() / 2, most.count());
  return Duration(time(random));
}

StoreDialer::StoreDialer(const asio::any_io_executor& executor, Target target)
    : executor_(executor),
      target_(std::move(target)),
      timer_(executor),
      patience_(kPatienceFirst) {}

void StoreDialer::close() {
  closed_ = true;
  if (trying_) trying_->close();
  timer_.cancel();
}

asio::awaitable<void> StoreDialer::pause(Duration most) {
  timer_.expires_after(jittered(most, random_));
  co_await timer_.async_wait(kNoThrow);
}

asio::awaitable<std::shared_ptr<StoreClient>> StoreDialer::try_all(
    std::optional<Instant> deadline) {
  std::string host = target_.host;
  const Duration resolve_within = left_until(deadline, kResolveWithin);
  const NameLookup found = co_await look_up(std::move(host), resolve_within);
  if (found.addresses.empty()) last_error_ = target_.host + ": " + found.error;
  bool silent = false;
  for (const std::string& address : found.addresses) {
    if (closed_) break;
    StoreClientOptions options{.host = address,
                               .port = target_.port,
                               .timeout = left_until(deadline, patience_),
                               .reply_timeout = target_.reply_timeout,
                               .retry = false};
    const Instant tried_at = now();
    trying_ = std::make_shared<StoreClient>(executor_, std::move(options));
    const auto done = co_await trying_->connect();
    const auto client = std::exchange(trying_, nullptr);
    if (done && !closed_) co_return client;
    // A try for which there was hardly time says less than the one before.
    const bool hurried = done.has_error() && now() - tried_at < kWorthTelling &&
                         done.error() == StoreErrc::ConnectTimedOut && !last_error_.empty();
    if (!done && !hurried) {
      last_error_ = endpoint_text(address, target_.port) + ": " + done.error().message();
      silent = silent || done.error() == StoreErrc::ConnectTimedOut;
    }
  }
  if (silent) patience_ = std::min(2 * patience_, kPatienceMost);
  co_return nullptr;
}

asio::awaitable<std::shared_ptr<StoreClient>> StoreDialer::dial(std::optional<Instant> deadline) {
  Duration most = kPauseFirst;
  patience_ = kPatienceFirst;
  while (!closed_) {
    auto client = co_await try_all(deadline);
    if (client) co_return client;
    if (closed_) break;
    co_await pause(left_until(deadline, most));
    if (deadline && now() >= *deadline) break;
    most = std::min(2 * most, kPauseMost);
  }
  co_return nullptr;
}

}  // namespace muster
