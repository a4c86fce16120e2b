#include "launcher/etcd_setup.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

using Conf = std::map<std::string, std::string>;

constexpr const char* kDefaultPrefix = "/torchelastic/p2p";  // etcd_rendezvous.py
constexpr std::size_t kMostPrefixBytes = 200;
constexpr std::int64_t kLeastLeaseSeconds = 2;  // etcd's own election takes up to a second.
constexpr std::int64_t kMostLeaseSeconds = 3600;

std::optional<std::string> take(Conf& conf, const char* name) {
  const auto found = conf.find(name);
  if (found == conf.end()) return std::nullopt;
  std::string value = std::move(found->second);
  conf.erase(found);
  return value;
}

bool is_prefix_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '.' || c == '_' || c == '/';
}

Checked<std::string> parse_prefix(const std::string& given, const std::string& flag) {
  std::string prefix = given.starts_with('/') ? given : "/" + given;
  while (prefix.ends_with('/'))
    prefix.pop_back();
  if (prefix.empty() || prefix.size() > kMostPrefixBytes ||
      !std::all_of(prefix.begin(), prefix.end(), is_prefix_character))
    return FlagError{flag + ": the prefix of the keys in etcd is " + python_repr(given) +
                     ", but must be 1 to " + std::to_string(kMostPrefixBytes) +
                     " letters, digits and '-', '.', '_', '/'"};
  // A FlagError can be made of a string, too: which of both is meant has to be said.
  return {boost::system::in_place_value, std::move(prefix)};
}

/// The files are read later. etcd-v2 has other names for them than etcd.
Checked<void> plan_etcd_tls(Conf& conf, EtcdRendezvousOptions& etcd, const std::string& flag) {
  const auto protocol = take(conf, "protocol");
  // It is http or https, in any case.
  etcd.speaks_tls = protocol && strip(*protocol).size() == std::string_view("https").size();
  const auto file = [&](const char* name, const char* name_of_v2, std::string& to) {
    auto given = take(conf, name);
    const auto given_to_v2 = take(conf, name_of_v2);
    if (!given) given = given_to_v2;
    to = given.value_or(std::string());
  };
  file("cacert", "ca_cert", etcd.tls_ca);
  file("cert", "ssl_cert", etcd.tls_certificate);
  file("key", "ssl_cert_key", etcd.tls_key);
  if (etcd.tls_certificate.empty() != etcd.tls_key.empty())
    return FlagError{flag +
                     ": a certificate for etcd needs its key, and a key its certificate: give cert "
                     "and key (with etcd-v2: ssl_cert and ssl_cert_key)"};
  const bool has_files = !etcd.tls_ca.empty() || !etcd.tls_certificate.empty();
  if (has_files && !etcd.speaks_tls)
    return FlagError{flag +
                     ": a CA or a certificate for etcd is used by TLS only, and without "
                     "protocol=https etcd is asked without TLS; give protocol=https, too, or leave "
                     "the files out"};
  return {};
}

}  // namespace

Checked<void> plan_etcd(Conf& conf, RendezvousOptions& rendezvous, const std::string& flag) {
  auto prefix = take(conf, "etcd_prefix");
  const auto short_name = take(conf, "prefix");
  if (!prefix) prefix = short_name;
  auto parsed = parse_prefix(prefix.value_or(kDefaultPrefix), flag);
  if (!parsed) return parsed.error();
  rendezvous.etcd.prefix = *std::move(parsed);
  if (const auto lease = take(conf, "host_lease")) {
    const auto seconds = parse_python_int(*lease);
    if (!seconds || *seconds < kLeastLeaseSeconds || *seconds > kMostLeaseSeconds)
      return FlagError{flag + ": host_lease is " + python_repr(*lease) + ", but must be " +
                       std::to_string(kLeastLeaseSeconds) + " to " +
                       std::to_string(kMostLeaseSeconds) + " seconds"};
    rendezvous.etcd.host_lease = std::chrono::seconds(*seconds);
  }
  // torchrun's limit of one rendezvous with etcd; join_timeout is that of its other backends.
  if (auto timeout = take(conf, "timeout")) conf.emplace("join_timeout", *std::move(timeout));
  // User and password are for the agent, which reads the file.
  for (const char* name : {"user", "password_file"})
    (void)take(conf, name);
  return plan_etcd_tls(conf, rendezvous.etcd, flag);
}

}  // namespace muster
