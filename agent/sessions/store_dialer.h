// Connects to a rendezvous store that may start later, or that listens at only one of its
// addresses.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/sessions/retry_pause.h"
#include "base/time.h"
#include "rendezvous/client/store_client.h"

namespace muster {

class StoreDialer {
 public:
  struct Target {
    std::string host;  // A name, which is resolved again for every try, or an address.
    std::uint16_t port = 0;
    /// The limit for requests that the server answers at once.
    Duration reply_timeout = std::chrono::seconds(60);
  };
  StoreDialer(const boost::asio::any_io_executor& executor, Target target);

  /// Tries until a store has accepted the connection and answered. Returns null at `deadline` or
  /// after close(). Only one dial may run at a time. A wait of the client without its own timeout
  /// ends after some seconds.
  boost::asio::awaitable<std::shared_ptr<StoreClient>> dial(Instant deadline);
  void close();
  bool closed() const { return closed_; }

  /// The latest error, such as "10.0.0.1:29400: Connection refused". Empty if no try has failed
  /// yet.
  const std::string& last_error() const { return last_error_; }

 private:
  boost::asio::awaitable<std::shared_ptr<StoreClient>> try_all(Instant deadline);

  boost::asio::any_io_executor executor_;
  Target target_;
  RetryPause pause_;
  Duration try_timeout_;
  std::shared_ptr<StoreClient> connecting_;
  std::string last_error_;
  bool closed_ = false;
};

/// "host:port" for people, with an IPv6 address in brackets.
std::string endpoint_text(const std::string& host, std::uint16_t port);

}  // namespace muster
