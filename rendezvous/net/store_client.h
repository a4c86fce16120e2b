// A client of a TCPStore server, ours or torch's, for coroutines on one thread.
//
// Keys get torch's prefix "/" here, so that Python clients of the same store see them under the
// same names. One operation at a time; after a failure other than WaitTimedOut or QueueEmpty the
// connection is closed and every later call fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/core/result.h"
#include "rendezvous/core/store_request.h"
#include "rendezvous/core/time.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

enum class StoreErrc {
  ConnectTimedOut = 1,  // No connection, or no answer to the greeting, within the time.
  WaitTimedOut,         // The key did not come, or the barrier did not fill; still connected.
  ReplyTimedOut,        // The server is silent though it owes an answer.
  Closed,               // By the server: it refused a request, or it is gone.
  UnexpectedReply,      // Not what a TCPStore server answers.
  ReplyTooLarge,
  QueueEmpty,
  ResolveTimedOut,  // Nobody has said in time where the host is.
};
const boost::system::error_category& store_category();
inline boost::system::error_code make_error_code(StoreErrc code) {
  return {static_cast<int>(code), store_category()};
}

struct StoreClientOptions {
  std::string host = {};  // A name, or a numeric address.
  /// Numeric: where the host is, if that is known already. Empty: its name is resolved.
  std::vector<std::string> addresses = {};
  std::uint16_t port = 0;
  Duration timeout = std::chrono::seconds(300);  // Of connect() and of waits.
  Duration reply_timeout =
      std::chrono::seconds(60);  // Of everything that a server answers at once.
  /// Servers of torch before 2.5 close the connection on PING.
  bool ping = true;
  bool retry = true;  // connect() tries until `timeout`, not once.
  std::uint64_t reply_bytes = std::uint64_t{1} << 30;
  /// Null: plain TCP. With it the connection speaks TLS or does not come about.
  SharedTls tls = {};
  std::string tls_name = {};  // What the host's certificate is for; empty: `host`.
};

class StoreExchange;

class StoreClient {
 public:
  StoreClient(const boost::asio::any_io_executor& executor, StoreClientOptions options);
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;
  ~StoreClient();

  template <typename T>
  using Awaitable = boost::asio::awaitable<Result<T>>;

  /// Resolves, connects and greets; tries again until `timeout`, as the server may come later.
  Awaitable<void> connect();
  void close();
  bool connected() const;
  /// Of our end of the connection, numeric; empty when not connected.
  std::string local_address() const;

  /// The names are torch's, and so is what they do; see docs/protocol.md. The strings that are
  /// passed must live until the answer is there.
  Awaitable<void> set(std::string_view key, std::string_view value);
  Awaitable<std::string> get(std::string_view key);  // Waits for it first.
  Awaitable<std::int64_t> add(std::string_view key, std::int64_t delta);
  Awaitable<bool> check(std::vector<std::string> keys);
  Awaitable<void> wait(std::vector<std::string> keys);
  Awaitable<void> wait(std::vector<std::string> keys, Duration timeout);
  Awaitable<std::string> compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired);
  Awaitable<std::vector<std::string>> multi_get(std::vector<std::string> keys);
  Awaitable<void> multi_set(std::vector<std::string> keys, std::vector<std::string> values);
  Awaitable<void> append(std::string_view key, std::string_view value);
  Awaitable<bool> delete_key(std::string_view key);
  Awaitable<std::int64_t> num_keys();
  Awaitable<std::vector<std::string>> list_keys();  // Those with the prefix, without it.
  Awaitable<void> queue_push(std::string_view name, std::string_view value);
  Awaitable<std::string> queue_pop(std::string_view name);      // Waits for an element first.
  Awaitable<std::string> queue_try_pop(std::string_view name);  // Or QueueEmpty.
  Awaitable<std::int64_t> queue_len(std::string_view name);
  Awaitable<void> barrier(std::string_view key, std::int64_t world_size);

  /// What env:// workers and static agents do once: ADD 1 on "init/", without the prefix.
  Awaitable<std::int64_t> announce_worker();

 private:
  std::unique_ptr<StoreExchange> impl_;
};

}  // namespace muster

template <>
struct boost::system::is_error_code_enum<muster::StoreErrc> : std::true_type {};
