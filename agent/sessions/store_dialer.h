// Connections to a rendezvous store that may come later, or only on one of its addresses.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "agent/sessions/retry_pause.h"
#include "rendezvous/core/time.h"
#include "rendezvous/net/store_client.h"

namespace muster {

class StoreDialer {
 public:
  struct Target {
    std::string host;  // A name, resolved again for every try; or an address.
    std::uint16_t port = 0;
    /// Of everything that the server answers at once.
    Duration reply_timeout = std::chrono::seconds(60);
  };
  StoreDialer(const boost::asio::any_io_executor& executor, Target target);

  /// Tries until there is a connection with a store that has answered; gives nothing if that fails
  /// until `deadline` (no deadline: never), or after close(). One dial at a time. Waits of the
  /// client that name no time of their own end after seconds.
  boost::asio::awaitable<std::shared_ptr<StoreClient>> dial(std::optional<Instant> deadline);
  void close();
  bool closed() const { return closed_; }

  /// "10.0.0.1:29400: Connection refused"; empty if nothing has failed yet.
  const std::string& last_error() const { return last_error_; }

 private:
  boost::asio::awaitable<std::shared_ptr<StoreClient>> try_all(std::optional<Instant> deadline);

  boost::asio::any_io_executor executor_;
  Target target_;
  RetryPause pause_;
  Duration patience_;
  std::shared_ptr<StoreClient> trying_;
  std::string last_error_;
  bool closed_ = false;
};

/// A host and its port as people write them: an IPv6 address in brackets.
std::string endpoint_text(const std::string& host, std::uint16_t port);

}  // namespace muster
