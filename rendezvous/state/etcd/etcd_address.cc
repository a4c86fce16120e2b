#include "rendezvous/state/etcd/etcd_address.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/ip/address_v6.hpp>

#include "base/whole_number.h"

namespace muster {
namespace {

constexpr std::string_view kEtcdScheme = "etcd://";
constexpr std::string_view kDefaultPrefix = "/muster";
constexpr const char* kAddressForm =
    "write etcd://HOST:2379,HOST:2379,HOST:2379/PREFIX with all members of the cluster";

EtcdAddressError wrong(std::string_view text, const std::string& what) {
  return {"'" + std::string(text) + "' " + what + ": " + kAddressForm};
}

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '.' || c == '_';
}

bool is_member_host(std::string_view host, bool in_brackets) {
  if (!in_brackets)
    return !host.empty() && host.find_first_not_of('.') != std::string_view::npos &&
           std::all_of(host.begin(), host.end(), is_name_character);
  boost::system::error_code not_numeric;
  boost::asio::ip::make_address_v6(std::string(host), not_numeric);
  return !not_numeric;
}

std::optional<EtcdMember> member_of(std::string_view text) {
  EtcdMember member;
  const auto colon = text.rfind(':');
  const bool all_brackets = text.ends_with(']');
  std::string_view host = text;
  if (colon != std::string_view::npos && !all_brackets) {
    host = text.substr(0, colon);
    member.port = whole_number<std::uint16_t>(text.substr(colon + 1)).value_or(0);
    if (member.port == 0) return std::nullopt;
  }
  const bool in_brackets = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  if (in_brackets) host = host.substr(1, host.size() - 2);
  if (!is_member_host(host, in_brackets)) return std::nullopt;
  member.host = std::string(host);
  return member;
}

}  // namespace

boost::system::result<EtcdAddress, EtcdAddressError> parse_etcd_address(std::string_view text) {
  if (text.starts_with("etcds://") || text.starts_with("https://"))
    return EtcdAddressError{
        "'" + std::string(text) +
        "' asks for TLS: write etcd://HOST:2379/PREFIX, and give the CA of the members' "
        "certificates by --state-ca, with which musterd speaks TLS to all of them"};
  if (!text.starts_with(kEtcdScheme)) return wrong(text, "does not begin with etcd://");
  std::string_view rest = text.substr(kEtcdScheme.size());
  EtcdAddress address;
  const auto slash = rest.find('/');
  address.prefix = slash == std::string_view::npos ? "" : std::string(rest.substr(slash));
  rest = rest.substr(0, slash);
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    address.login.user = std::string(rest.substr(0, at));
    // The error does not repeat the text: it may contain a password.
    if (address.login.user.find(':') != std::string::npos)
      return EtcdAddressError{
          "--state has a password in it, which every user of this machine can read there: write "
          "etcd://USER@HOST:2379/PREFIX, and give the password by --state-password-file or "
          "ETCDCTL_PASSWORD"};
    if (address.login.user.empty() || address.login.user.size() > kMaxEtcdUserBytes ||
        !std::all_of(address.login.user.begin(), address.login.user.end(), is_name_character))
      return EtcdAddressError{
          "--state: before the '@' stands a user of etcd, of letters, digits and '-', '.', '_'; "
          "give another name by ETCDCTL_USER"};
    rest.remove_prefix(at + 1);
  }
  while (address.prefix.ends_with('/'))
    address.prefix.pop_back();
  if (address.prefix.empty()) address.prefix = kDefaultPrefix;
  if (address.prefix.size() > kMaxEtcdPrefixBytes)
    return wrong(
        text, "has a prefix of more than " + std::to_string(kMaxEtcdPrefixBytes) + " characters");
  for (const char c : address.prefix)
    if (c != '/' && !is_name_character(c))
      return wrong(text, "has a prefix with more than letters, digits and '-', '.', '_', '/'");
  for (;;) {
    const auto comma = rest.find(',');
    auto member = member_of(rest.substr(0, comma));
    if (!member)
      return wrong(text, "names the member '" + std::string(rest.substr(0, comma)) +
                             "', which is no HOST:PORT");
    address.members.push_back(*std::move(member));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (address.members.size() > kMaxEtcdMembers)
    return wrong(text, "names more than " + std::to_string(kMaxEtcdMembers) + " members");
  return address;
}

std::string to_text(const EtcdMember& member) {
  const bool is_ipv6 = member.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + member.host + "]" : member.host) + ":" + std::to_string(member.port);
}

}  // namespace muster
