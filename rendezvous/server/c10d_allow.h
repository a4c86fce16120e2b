// --c10d-allow: the addresses that may use the c10d door. The protocol of that door has no way to
// authenticate clients.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/system/result.hpp>

namespace muster {

struct C10dAllow {
  std::string text;  // As given.
  bool any = false;
  bool loopback = false;
  bool members = false;  // The addresses of nodes that are connected through the native door.
  std::vector<boost::asio::ip::network_v4> networks_v4 = {};
  std::vector<boost::asio::ip::network_v6> networks_v6 = {};

  /// Whether the rule admits the address without regard to members. An IPv4 address must be given
  /// as unmapped() returns it.
  bool lists(const boost::asio::ip::address& address) const;
};

inline constexpr std::size_t kMaxC10dNetworks = 64;

/// The c10d door of one server: the rule, and the addresses of the members.
class C10dDoor {
 public:
  /// Without a rule, every address is admitted.
  explicit C10dDoor(std::optional<C10dAllow> allow) : allow_(std::move(allow)) {}

  bool open_to_all() const { return !allow_ || allow_->any; }
  bool admits(const boost::asio::ip::address& address) const;
  /// Whether clients at the address may use the keys of this run. A member may use the keys of its
  /// own runs.
  bool admits_to_run(const boost::asio::ip::address& address, std::string_view run) const;
  /// The run of all nodes that are connected from this address; empty if there are none, or if they
  /// belong to several runs.
  std::string_view only_run_at(const boost::asio::ip::address& address) const;
  /// The rule as it was given, for the log.
  std::string rule() const { return allow_ ? allow_->text : "any"; }

  /// A node of a run at this address has connected through the native door. left() must be called
  /// once for each call of joined().
  void joined(const boost::asio::ip::address& address, const std::string& run) {
    ++members_[address][run];
  }
  void left(const boost::asio::ip::address& address, const std::string& run);
  /// A node at this address has proven the token and disconnected again. Its workers will connect
  /// later. At most kMaxMembers addresses are kept; further ones are ignored.
  void introduced(const boost::asio::ip::address& address);
  void forget_introduced() { introduced_.clear(); }

 private:
  std::optional<C10dAllow> allow_;
  using Runs = std::map<std::string, std::size_t, std::less<>>;
  std::map<boost::asio::ip::address, Runs> members_;  // By address: the number of nodes by run.
  std::set<boost::asio::ip::address> introduced_;
};

struct C10dAllowError {
  std::string reason;  // Without the option's name.
};

/// Reads "off", "any", or a list separated by commas: "loopback", "members", addresses
/// ("10.0.0.7") and networks ("10.0.0.0/8", "fd00::/8"). At most kMaxC10dNetworks addresses and
/// networks.
boost::system::result<C10dAllow, C10dAllowError> parse_c10d_allow(std::string_view text);

/// musterd's default: all clients, as in torch. With a token: members only.
C10dAllow service_c10d_allow(bool has_token);
/// The agent's default, for the rendezvous that it hosts and for the workers' store: the same, but
/// with a token also loopback, because this machine's workers may connect by any of its addresses.
C10dAllow agent_c10d_allow(bool has_token);

}  // namespace muster
