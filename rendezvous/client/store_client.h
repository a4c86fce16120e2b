// A client of a TCPStore server, of muster or of torch, for coroutines on one thread.
//
// The client adds torch's prefix "/" to keys, so that Python clients of the same store see them
// under the same names. Only one operation may run at a time. After a failure other than
// WaitTimedOut or QueueEmpty, the connection is closed and every later call fails.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/store/store_request.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

enum class StoreErrc {
  ConnectTimedOut = 1,  // No connection, or no reply to the greeting, within the time limit.
  WaitTimedOut,         // The key was not set, or the barrier did not fill. Still connected.
  ReplyTimedOut,        // The server has not sent the reply in time.
  Closed,           // The server has closed the connection: it refused a request, or it is gone.
  UnexpectedReply,  // The reply is not one of a TCPStore server.
  SpeaksHttp,       // The same, and the reply is HTTP's.
  ReplyTooLarge,
  QueueEmpty,
};
const boost::system::error_category& store_category();
inline boost::system::error_code make_error_code(StoreErrc code) {
  return {static_cast<int>(code), store_category()};
}

struct StoreClientOptions {
  std::string host = {};  // A name, or a numeric address.
  /// Numeric addresses of the host, if they are already known. Empty: the name is resolved.
  std::vector<std::string> addresses = {};
  std::uint16_t port = 0;
  Duration timeout = std::chrono::seconds(300);  // The limit of connect() and of waits.
  /// Only without `retry`: the limit of the look-up, which does not count for `timeout`, and the
  /// limit of the server's first answer after its machine has accepted the connection (empty:
  /// `timeout` is the limit of both).
  Duration resolve_timeout = std::chrono::seconds(15);
  std::optional<Duration> answer_timeout = {};
  Instant give_up_at = Instant::max();  // The end of connect(), whatever the other limits are.
  std::optional<Duration> wait_timeout = {};  // Another limit of waits. Empty: `timeout`.
  /// The limit of all requests that the server answers at once.
  Duration reply_timeout = std::chrono::seconds(60);
  /// Servers of torch before 2.5 close the connection on PING.
  bool ping = true;
  bool retry = true;  // connect() tries again until `timeout`. Otherwise it tries once.
  std::uint64_t reply_bytes = std::uint64_t{1} << 30;
  /// Null: plain TCP. Otherwise the connection uses TLS, or connect() fails.
  SharedTls tls = {};
  std::string tls_name = {};  // The name that the host's certificate must have. Empty: `host`.
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

  /// Resolves the name, connects and sends the greeting. Tries again until `timeout`, because the
  /// server may start later.
  Awaitable<void> connect();
  void close();
  bool connected() const;
  /// The numeric address of this end of the connection. Empty if not connected.
  std::string local_address() const;

  /// These functions have torch's names and meanings: see docs/protocol.md. Strings that are passed
  /// as views must live until the call has completed.
  Awaitable<void> set(std::string_view key, std::string_view value);
  Awaitable<std::string> get(std::string_view key);  // Waits for the key first.
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
  Awaitable<std::vector<std::string>> list_keys();  // Only keys with the prefix, which is removed.
  Awaitable<void> queue_push(std::string_view name, std::string_view value);
  Awaitable<std::string> queue_pop(std::string_view name);      // Waits for an element first.
  Awaitable<std::string> queue_try_pop(std::string_view name);  // Fails with QueueEmpty.
  Awaitable<std::int64_t> queue_len(std::string_view name);
  Awaitable<void> barrier(std::string_view key, std::int64_t world_size);

  /// Adds 1 to the key "init/", without the prefix, as env:// workers and static agents do once.
  Awaitable<std::int64_t> announce_worker();

 private:
  std::unique_ptr<StoreExchange> impl_;
};

}  // namespace muster

template <>
struct boost::system::is_error_code_enum<muster::StoreErrc> : std::true_type {};
