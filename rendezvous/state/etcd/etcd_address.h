// The address of an etcd as in --state: etcd://[USER@]HOST[:PORT][,HOST[:PORT]...][/PREFIX].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "rendezvous/state/etcd/etcd_login.h"

namespace muster {

struct EtcdMember {
  std::string host;  // A name, or a numeric address without brackets.
  std::uint16_t port = 2379;
  bool operator==(const EtcdMember&) const = default;
};

struct EtcdAddress {
  std::vector<EtcdMember> members;
  EtcdLogin login;     // parse_etcd_address() fills in only the user.
  std::string prefix;  // Begins with a slash and ends without one.
};

struct EtcdAddressError {
  std::string reason;  // For the user: the problem, and what to write.
};

inline constexpr std::size_t kMaxEtcdMembers = 16;
inline constexpr std::size_t kMaxEtcdPrefixBytes = 256;

boost::system::result<EtcdAddress, EtcdAddressError> parse_etcd_address(std::string_view text);
/// "host:port", with an IPv6 address in brackets.
std::string to_text(const EtcdMember& member);

}  // namespace muster
