// An etcd cluster over its JSON gateway: requests that go to one member after the other, and a
// watch.
//
// HTTP/1.1 by Boost.Beast, plain or over TLS: docs/decisions/0017-etcd-client.md. The texts are
// those of rendezvous/wire/etcd_json.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>

#include "rendezvous/core/time.h"
#include "rendezvous/etcd/etcd_address.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster {

struct EtcdError {
  EtcdError() = default;
  EtcdError(std::string error_text, bool is_refusal)
      : text(std::move(error_text)), refused(is_refusal) {}
  std::string text;            // For the log: which member, and what it says.
  bool refused = false;        // A member has answered that it will not: the others would, too.
  bool tls_refused = false;    // TLS came to nothing: one side does not accept the other one.
  bool token_refused = false;  // It does not know our token, or not any more.
};
template <typename T>
using EtcdResult = boost::system::result<T, EtcdError>;

/// By which address this machine reaches an etcd member.
struct EtcdOwnAddress {
  std::string address;  // Numeric.
  bool is_loopback = false;
  std::string member_host;
};

inline constexpr std::size_t kMostEtcdReplyBytes = 32 << 20;
inline constexpr std::size_t kMostEtcdWatchLine = 1 << 20;

/// An etcd for all channels of a thread: they share the token that its user was given.
struct EtcdPeers {
  std::vector<EtcdMember> members;
  EtcdLogin login;
  SharedTls tls = {};      // Null: plain HTTP.
  std::string token = {};  // Empty: none yet, or not needed.
};
using EtcdPeersPtr = std::shared_ptr<EtcdPeers>;

/// One connection at a time, kept open. For one coroutine at a time, on one thread.
class EtcdChannel {
 public:
  EtcdChannel(boost::asio::any_io_executor executor, EtcdPeersPtr peers);
  EtcdChannel(const EtcdChannel&) = delete;
  EtcdChannel& operator=(const EtcdChannel&) = delete;
  ~EtcdChannel();

  /// The answer to `body`. Asks each member once, beginning with the one that has answered last,
  /// and gives each of them `per_member`. A request whose answer was lost is sent again: it must
  /// not matter whether it is done twice.
  boost::asio::awaitable<EtcdResult<std::string>> ask(std::string path, std::string body,
                                                      Duration per_member);
  /// Waits for the first event of the watch `body`, for `at_most`. True: it has come, or the watch
  /// has ended and what it watched should be read again. False: nothing has happened.
  boost::asio::awaitable<EtcdResult<bool>> watch(std::string body, Duration per_member,
                                                 Duration at_most);
  /// The member after this one is asked first from now on.
  void next_member();
  /// This machine's end of the latest connection, and the member at its other end. Empty before the
  /// first one.
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
  boost::asio::awaitable<EtcdResult<void>> authenticate(Duration limit);
  EtcdError failed(const std::string& why) const;
  /// The connection has failed with `ec`; TLS may know the cause.
  EtcdError broken(const boost::system::error_code& ec) const;
  const EtcdMember& member() const { return peers_->members[current_]; }

  boost::asio::any_io_executor executor_;
  EtcdPeersPtr peers_;
  std::size_t current_ = 0;
  EtcdOwnAddress own_address_;
  std::unique_ptr<Wire> wire_;  // Empty: not connected.
};

}  // namespace muster
