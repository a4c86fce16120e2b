// --c10d-allow: who may use the c10d door, whose protocol cannot ask its clients who they are.
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
  bool members = false;  // Addresses from which nodes have come in through the native door.
  std::vector<boost::asio::ip::network_v4> networks_v4 = {};
  std::vector<boost::asio::ip::network_v6> networks_v6 = {};

  /// Whether the address may come, members aside. `address`: unmapped() if it is an IPv4 one.
  bool lists(const boost::asio::ip::address& address) const;
};

inline constexpr std::size_t kMaxC10dNetworks = 64;

/// The c10d door of one server: the rule, and the addresses of the members.
class C10dDoor {
 public:
  /// Nothing: everybody may come.
  explicit C10dDoor(std::optional<C10dAllow> allow) : allow_(std::move(allow)) {}

  bool open_to_all() const { return !allow_ || allow_->any; }
  bool admits(const boost::asio::ip::address& address) const;
  /// Whether it may use the keys of this run: a member may use those of its own runs.
  bool admits_to_run(const boost::asio::ip::address& address, std::string_view run) const;
  /// As given, for the log.
  std::string rule() const { return allow_ ? allow_->text : "any"; }

  /// A node of a run has come in through the native door, from this address; and has gone. As many
  /// times.
  void joined(const boost::asio::ip::address& address, const std::string& run) {
    ++members_[address][run];
  }
  void left(const boost::asio::ip::address& address, const std::string& run);
  /// A node has proven who it is and gone again; its workers will come. Beyond kMaxMembers
  /// addresses nobody is added.
  void introduced(const boost::asio::ip::address& address);
  void forget_introduced() { introduced_.clear(); }

 private:
  std::optional<C10dAllow> allow_;
  using Runs = std::map<std::string, std::size_t, std::less<>>;
  std::map<boost::asio::ip::address, Runs> members_;  // Nodes of each run.
  std::set<boost::asio::ip::address> introduced_;
};

struct C10dAllowError {
  std::string reason;  // Without the option's name.
};

/// "off", "any", or words with commas between them: "loopback", "members", addresses
/// ("10.0.0.7") and networks ("10.0.0.0/8", "fd00::/8"), at most kMaxC10dNetworks of those.
boost::system::result<C10dAllow, C10dAllowError> parse_c10d_allow(std::string_view text);

/// musterd's default: everybody, as torch does, or with a token the members.
C10dAllow service_c10d_allow(bool has_token);
/// An agent's, for the rendezvous that it hosts and for the workers' store: the same, but with a
/// token this machine, too, whose workers may come by any of its addresses.
C10dAllow agent_c10d_allow(bool has_token);

}  // namespace muster
