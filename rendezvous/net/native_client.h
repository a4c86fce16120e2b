// A connection through the native door: a muster node and the host of its rendezvous.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include "rendezvous/core/result.h"
#include "rendezvous/core/time.h"
#include "rendezvous/tls/tls_pump.h"
#include "rendezvous/wire/native_codec.h"
#include "rendezvous/wire/token_proof.h"

namespace muster {

class StoreExchange;

struct NativeClientOptions {
  std::string host;  // A name, or a numeric address.
  /// Numeric: where the host is, if that is known already. Empty: its name is resolved.
  std::vector<std::string> addresses = {};
  std::uint16_t port = 0;
  std::string run_id;
  Duration connect_timeout = std::chrono::seconds(60);
  bool retry = true;  // connect() tries until then, not once.
  /// What was sent and not acknowledged for so long has gone to a host that is no more.
  Duration lost_after = std::chrono::seconds(5);
  /// Null: no token. With one, the host must prove that it has it, too.
  SharedTokenCrypto token = {};
  /// Null: plain TCP. With it there is a TLS connection or none.
  SharedTls tls = {};
  std::string tls_name = {};  // What the host's certificate is for; empty: `host`.
};

/// Who listens there.
enum class HostKind {
  Muster,      // Connected, and welcome.
  Refused,     // A muster that does not want us, or that we do not understand: refusal() says why.
  Unproven,    // We have a token, and it does not prove that it has it, too: refusal() says why.
  Other,       // A store without this door: torchrun's. Not with TLS.
  TlsRefused,  // One side does not accept the other's certificate or handshake: refusal() says why.
  TlsLost,     // The connection ended before TLS had begun, as by a host that does not speak it.
};

/// For one thread. After close() no handler is called any more, and it may be destroyed.
class NativeClient {
 public:
  struct Handlers {
    std::function<void(const NativeMessage&)> on_message;
    std::function<void(std::string reason)> on_lost;  // Once; nothing follows.
  };
  NativeClient(const boost::asio::any_io_executor& executor, const NativeClientOptions& options);
  NativeClient(const NativeClient&) = delete;
  NativeClient& operator=(const NativeClient&) = delete;
  ~NativeClient();

  /// Tries again until connect_timeout, with the name resolved anew each time. Once.
  boost::asio::awaitable<Result<HostKind>> connect();
  /// Messages begin to come. After connect(), once.
  void start(Handlers handlers);
  void send(const NativeRequest& request);
  /// What was sent before is still sent.
  void close();
  /// Calls `done` when everything that was sent is on its way, or cannot be: at once, or later.
  void when_idle(const std::function<void()>& done);

  const std::string& refusal() const;
  const NativeWelcome& welcome() const;
  /// Ours: the one by which we reach the host.
  boost::asio::ip::address local_address() const;
  boost::asio::ip::address remote_address() const;

 private:
  struct State;
  static boost::asio::awaitable<void> read(std::shared_ptr<State> state);
  static boost::asio::awaitable<void> write(std::shared_ptr<State> state);
  static Result<HostKind> no_answer(State& state, boost::system::error_code why);
  static void lost(State& state, const std::string& reason);

  std::shared_ptr<State> state_;
};

}  // namespace muster
