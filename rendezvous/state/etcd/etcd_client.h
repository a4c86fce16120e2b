// A client for an etcd cluster over its JSON gateway. A request tries one member after the other.
// There is also a watch.
//
// HTTP/1.1 by Boost.Beast, plain or over TLS: docs/decisions/0017-etcd-client.md.
// rendezvous/state/etcd/etcd_json.h encodes and decodes the texts.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include "base/time.h"
#include "rendezvous/state/etcd/etcd_address.h"
#include "rendezvous/tls/tls_context.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

struct EtcdError {
  EtcdError() = default;
  EtcdError(std::string error_text, bool is_refusal)
      : text(std::move(error_text)), refused(is_refusal) {}
  std::string text;            // For the log: the member and its error.
  bool refused = false;        // The member has refused the request: the others would do the same.
  bool tls_refused = false;    // The TLS handshake failed: one side does not accept the other.
  bool token_refused = false;  // The member does not know the token, or it has expired.
  bool too_long = false;       // The answer is longer than kMaxEtcdReplyBytes.
};
template <typename T>
using EtcdResult = boost::system::result<T, EtcdError>;

/// The address of this machine on a connection to an etcd member.
struct EtcdOwnAddress {
  std::string address;  // Numeric.
  bool is_loopback = false;
  std::string member_host;
};

// Twice what the largest record needs. A longer page of records is read in parts: decoding it takes
// time in which nothing else runs on the thread, not even the renewal of the lease.
inline constexpr std::size_t kMaxEtcdReplyBytes = 4 << 20;
inline constexpr std::size_t kMaxEtcdWatchLine = 1 << 20;

/// The files of `tls`, to read them again. May be shared with a thread that reads them.
struct EtcdTlsFiles {
  explicit EtcdTlsFiles(TlsFiles given) : files(std::move(given)) {}
  const TlsFiles files;
  const std::shared_ptr<std::atomic<bool>> reading = std::make_shared<std::atomic<bool>>(false);
};

/// The data that all channels of one thread share, such as the token that etcd gave the user.
struct EtcdPeers {
  std::vector<EtcdMember> members;
  EtcdLogin login;
  SharedTls tls = {};  // Null: plain HTTP.
  /// Read again for each new connection. Null: only others renew `tls`.
  std::shared_ptr<EtcdTlsFiles> tls_files = {};
  std::string token = {};  // Empty: there is none yet, or none is needed.
  std::shared_ptr<std::atomic<bool>> reading_password = std::make_shared<std::atomic<bool>>(false);
};
using EtcdPeersPtr = std::shared_ptr<EtcdPeers>;

/// Has one connection at a time and keeps it open. To be used on one thread, by one coroutine at a
/// time.
class EtcdChannel {
 public:
  EtcdChannel(boost::asio::any_io_executor executor, EtcdPeersPtr peers);
  EtcdChannel(const EtcdChannel&) = delete;
  EtcdChannel& operator=(const EtcdChannel&) = delete;
  ~EtcdChannel();

  /// Sends `body` and returns the answer. Tries each member once, starting with the one that
  /// answered last, for `per_member` each. A request whose answer was lost is sent again, so it
  /// must be idempotent.
  boost::asio::awaitable<EtcdResult<std::string>> ask(std::string path, std::string body,
                                                      Duration per_member);
  /// Waits for the first event of the watch `body`, for `at_most`. True: there was an event, or the
  /// watch has ended and the caller should read the keys again. False: no event came.
  boost::asio::awaitable<EtcdResult<bool>> watch(std::string body, Duration per_member,
                                                 Duration at_most);
  /// From now on requests start with the next member.
  void next_member();
  /// This machine's address on the latest connection, and the member at the other end. Empty before
  /// the first connection.
  const EtcdOwnAddress& own_address() const { return own_address_; }

 private:
  struct Wire;
  boost::asio::awaitable<EtcdResult<void>> connect(Duration limit);
  boost::asio::awaitable<EtcdResult<std::string>> exchange(const std::string& path,
                                                           const std::string& body, Duration limit);
  boost::asio::awaitable<EtcdResult<bool>> read_watch(Duration at_most);
  boost::asio::awaitable<EtcdResult<std::string>> exchange_with_token(const std::string& path,
                                                                      const std::string& body,
                                                                      Duration limit);
  /// These read the files again, which may have been renewed. A file that is missing, incomplete or
  /// wrong changes nothing.
  boost::asio::awaitable<void> renew_password();
  boost::asio::awaitable<void> renew_tls();
  boost::asio::awaitable<EtcdResult<void>> authenticate(Duration limit);
  EtcdError failed(const std::string& why) const;
  /// The error for a connection that has failed with `ec`, with the cause from TLS if there is one.
  EtcdError broken(const boost::system::error_code& ec) const;
  const EtcdMember& member() const { return peers_->members[current_]; }

  boost::asio::any_io_executor executor_;
  EtcdPeersPtr peers_;
  std::size_t current_ = 0;
  EtcdOwnAddress own_address_;
  std::unique_ptr<Wire> wire_;  // Null: not connected.
  Instant connecting_since_{};  // When the latest look-up had ended.
};

}  // namespace muster
