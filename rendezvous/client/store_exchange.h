// The connection of a StoreClient: connects, sends requests and reads replies, each under a
// deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/net/name_lookup.h"
#include "rendezvous/client/store_client.h"
#include "rendezvous/store/reply_reader.h"
#include "rendezvous/store/store_request.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster {

/// The encoded request.
std::string bytes_of(const Request& request);

/// One connection. Each exchange, from the first byte of the request to the last byte of the reply,
/// has one deadline.
class StoreExchange {
 public:
  using Awaitable = boost::asio::awaitable<boost::system::error_code>;

  StoreExchange(const boost::asio::any_io_executor& executor, StoreClientOptions options)
      : options_(std::move(options)), socket_(executor), deadline_(executor) {}

  Awaitable connect();
  /// Sends a request that has no reply.
  Awaitable send(std::string bytes);
  /// Sends a request and awaits `reply`, which is one of the read functions below, under one
  /// deadline.
  Awaitable ask(std::string bytes, Awaitable reply);
  /// Sends a WAIT or BARRIER. After a timeout it cancels the wait, so that the connection can still
  /// be used.
  Awaitable wait(std::string bytes, Duration timeout);

  Awaitable read(void* to, std::size_t size);
  Awaitable read_reply(ReplyReader& reader);
  Awaitable read_number(std::int64_t& number);
  Awaitable read_byte(std::uint8_t& byte) { return read(&byte, 1); }
  Awaitable read_text(std::string& text);
  Awaitable read_texts(std::vector<std::string>& texts);
  Awaitable read_list(std::vector<std::string>& texts);
  Awaitable read_popped(std::int64_t& length, std::string& text);

  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  bool connected() const { return socket_.is_open(); }
  /// Whether the last try to connect was accepted by TCP.
  bool accepted() const { return accepted_; }
  /// Why the last connection has ended, if TLS was the reason.
  TlsFailure tls_failure() const {
    return secured_.status ? secured_.status->failure() : TlsFailure{};
  }
  /// Ends the connection if sent data is not acknowledged for so long (TCP_USER_TIMEOUT).
  void set_lost_after(Duration time);
  /// To be called only while connected.
  boost::asio::ip::address local_address() const;
  boost::asio::ip::address remote_address() const;
  /// The two ends of the connection, as end_text() writes them.
  std::string local_end() const;
  std::string remote_end() const;
  const StoreClientOptions& options() const { return options_; }

 private:
  boost::asio::awaitable<NameLookup> resolve(Duration limit);
  Awaitable connect_by_name(Instant deadline);
  Instant try_until(Instant deadline) const;
  Awaitable connect_once(std::vector<boost::asio::ip::tcp::endpoint> endpoints, Instant deadline);
  boost::asio::awaitable<void> wait_for_answer(Instant until);
  Awaitable greet();
  boost::asio::ip::tcp::endpoint local_endpoint() const;
  boost::asio::ip::tcp::endpoint remote_endpoint() const;
  boost::system::error_code begin_tls();
  Awaitable read_nonce();
  Awaitable write_then(const std::string& bytes, Awaitable reply);
  Awaitable cancel_wait();
  Awaitable with_deadline(Instant deadline, Awaitable work, StoreErrc timed_out);
  static Awaitable no_reply();

  StoreClientOptions options_;
  boost::asio::ip::tcp::socket socket_;
  SecuredSocket secured_;  // With options_.tls: the TLS part of the last connection.
  boost::asio::steady_timer deadline_;
  bool accepted_ = false;
};

}  // namespace muster
