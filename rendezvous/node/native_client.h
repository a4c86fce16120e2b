// A connection of a muster node, through the native door, to the host of its rendezvous.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/access/token_proof.h"
#include "rendezvous/messages/native_codec.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

class StoreExchange;

struct NativeClientOptions {
  std::string host;  // A name, or a numeric address.
  /// Numeric addresses of the host, if they are already known. Empty: the name is resolved.
  std::vector<std::string> addresses = {};
  std::uint16_t port = 0;
  std::string run_id;
  Duration connect_timeout = std::chrono::seconds(60);
  /// The limit of the look-up of `host`, for which connect_timeout does not count.
  Duration lookup_timeout = std::chrono::seconds(15);
  /// The limit of each answer until the welcome, after the host's machine has accepted the
  /// connection. Empty: connect_timeout.
  std::optional<Duration> answer_timeout = {};
  Instant give_up_at = Instant::max();  // The end of connect(), whatever the other limits are.
  /// If sent data is not acknowledged for so long, the host counts as lost.
  Duration lost_after = std::chrono::seconds(5);
  /// Null: no token. With a token, the host must prove that it has the same one.
  SharedTokenCrypto token = {};
  /// Null: plain TCP. Otherwise the connection uses TLS, or connect() fails.
  SharedTls tls = {};
  std::string tls_name = {};  // The name that the host's certificate must have. Empty: `host`.
};

/// The kind of program that listens at the host. refusal() gives the reason, except for Muster and
/// Other.
enum class HostKind {
  Muster,      // A muster that has welcomed this node. Connected.
  Refused,     // A muster that refuses this node, or whose answer this node does not understand.
  Unproven,    // This node has a token, and the host has not proven that it has it, too. Without
               // TLS also a host that refuses this node without the proof.
  Other,       // A store without the native door, such as torchrun's. Never with TLS.
  TlsRefused,  // One side does not accept the other's certificate or handshake.
  TlsLost,     // The connection ended before TLS had begun. The host may not support TLS.
};

/// For use on one thread. After close() no handler is called any more, and the object may be
/// destroyed.
class NativeClient {
 public:
  struct Handlers {
    std::function<void(const NativeMessage&)> on_message;
    std::function<void(std::string reason)> on_lost;  // Called at most once, as the last handler.
  };
  NativeClient(const boost::asio::any_io_executor& executor, const NativeClientOptions& options);
  NativeClient(const NativeClient&) = delete;
  NativeClient& operator=(const NativeClient&) = delete;
  ~NativeClient();

  /// Connects: tries once, for connect_timeout at most. To be called once.
  boost::asio::awaitable<Result<HostKind>> connect();
  /// Begins to read messages. To be called once, after connect().
  void start(Handlers handlers);
  void send(const NativeRequest& request);
  /// Closes the connection after the messages that are already queued are sent.
  void close();
  /// Calls `done` when all queued messages are written to the socket, or cannot be written. May
  /// call it at once.
  void when_idle(const std::function<void()>& done);

  const std::string& refusal() const;
  /// After connect() has failed: the host's machine has accepted the connection, and the host has
  /// not answered in time. It may be busy.
  bool was_silent() const;
  const NativeWelcome& welcome() const;
  /// Whether something between this node and the host has its own connections with both: the host
  /// sees other ends of this connection than this node does.
  bool is_proxied() const;
  /// The address of this end of the connection: the one by which this node reaches the host.
  boost::asio::ip::address local_address() const;
  boost::asio::ip::address remote_address() const;
  /// The other end of the connection, "address:port".
  std::string remote_end() const;

 private:
  struct State;
  static boost::asio::awaitable<void> read(std::shared_ptr<State> state);
  static boost::asio::awaitable<void> write(std::shared_ptr<State> state);
  static Result<HostKind> classify_failure(State& state, boost::system::error_code why);
  static void lost(State& state, const std::string& reason);

  std::shared_ptr<State> state_;
};

}  // namespace muster
