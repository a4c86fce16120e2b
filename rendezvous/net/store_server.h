// The store as a server: PyTorch's TCPStore clients (2.4 to 2.13) cannot tell it from torch's own.
//
// Runs on one io_context(1): alone on a thread of its own, as in the agent, or beside other things.
// It resolves no names and never blocks. What it promises to bad clients: docs/protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/core/store_table.h"
#include "rendezvous/core/time.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/wire/c10d_codec.h"
#include "rendezvous/wire/run_service.h"

namespace muster {

struct StoreServerOptions {
  std::vector<std::string> addresses = {};  // Numeric; none: every interface, IPv6 and IPv4.
  std::uint16_t port = 0;                   // 0: the kernel chooses.
  std::vector<int> descriptors = {};  // Bound sockets to take over; then the two above are unused.

  CodecLimits codec = {};
  StoreLimits table = {};
  std::size_t connections = 100'000;
  /// From accept to a complete VALIDATE.
  Duration validate_within = std::chrono::seconds(30);
  /// Half a request, or replies that nobody reads, without a byte moving for so long: closed.
  Duration stalled_after = std::chrono::seconds(300);
  /// Replies queued for one client. Beyond it nothing more is read from that client until half of
  /// it is gone; a single reply may be larger.
  std::size_t queued_bytes = std::size_t{4} << 20;
  /// Whether a peer may connect, asked before a byte is read; empty: anyone.
  std::function<bool(const boost::asio::ip::address&)> admit = {};
  /// Whose rendezvous is here; nothing: a store and no more.
  std::optional<RunServiceOptions> runs = {};
};

struct StoreServerStats {
  std::size_t connections = 0;
  std::size_t waiting = 0;
  std::size_t keys = 0;
  std::size_t table_bytes = 0;
  std::uint64_t accepted = 0;
  std::uint64_t requests = 0;
  std::size_t runs = 0;
};

/// All members are to be called on the io_context's thread, or while it does not run.
class StoreServer {
 public:
  StoreServer(boost::asio::io_context& loop, StoreServerOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();  // stop()

  /// Binds and begins to accept. At most once.
  boost::system::result<void, ListenError> start();
  /// Of the first listening socket; 0 before start().
  std::uint16_t port() const;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints() const;

  /// Closes every connection and empties the table; goes on listening. Between the attempts of a
  /// job: no key of the last one is seen by the next.
  void reset();
  /// Lets no muster node in any more. `done` is called once, from the loop, when every reply and
  /// message is sent and every torchrun node (who has ever asked for a rendezvous' state) has left,
  /// or at `deadline`; not after stop(). At most once.
  void drain(Instant deadline, std::function<void()> done);
  /// Closes everything. The loop has nothing more to do for this server.
  void stop();

  StoreServerStats stats() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
