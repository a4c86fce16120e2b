#include "launcher/rendezvous_setup.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/python_text.h"
#include "rendezvous/access/tls_allow.h"
#include "rendezvous/http/http_route.h"

namespace muster {
namespace {

using Conf = std::map<std::string, std::string>;

constexpr const char* kDefaultPrefix = "/torchelastic/p2p";  // etcd_rendezvous.py
constexpr std::size_t kMaxPrefixBytes = 200;
constexpr std::int64_t kLeastLeaseSeconds = 2;  // etcd's own election takes up to a second.
constexpr std::int64_t kMaxLeaseSeconds = 3600;

std::optional<std::string> take_setting(Conf& conf, const char* name) {
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
  if (prefix.empty() || prefix.size() > kMaxPrefixBytes ||
      !std::all_of(prefix.begin(), prefix.end(), is_prefix_character))
    return FlagError{flag + ": the prefix of the keys in etcd is " + python_repr(given) +
                     ", but must be 1 to " + std::to_string(kMaxPrefixBytes) +
                     " letters, digits and '-', '.', '_', '/'"};
  // Names the alternative explicitly: a FlagError can be made from a string, too.
  return {boost::system::in_place_value, std::move(prefix)};
}

/// Plans TLS to etcd. The files are read later. etcd-v2 has other keys for them than etcd.
Checked<void> plan_etcd_tls(Conf& conf, EtcdRendezvousOptions& etcd, const std::string& flag) {
  const auto protocol = take_setting(conf, "protocol");
  // The value is known to be http or https, in upper or lower case.
  etcd.speaks_tls = protocol && strip(*protocol).size() == std::string_view("https").size();
  const auto file = [&](const char* name, const char* name_of_v2, std::string& to) {
    auto given = take_setting(conf, name);
    const auto given_to_v2 = take_setting(conf, name_of_v2);
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

Checked<void> plan_tls_file(const Flags& flags, std::optional<std::string> Flags::*option,
                            RendezvousBackend backend, std::string& file) {
  const std::optional<std::string>& given = flags.*option;
  if (!given) return {};
  if (given->empty()) return FlagError{flags.name_of(option) + " is empty; give a file's name"};
  if (backend == RendezvousBackend::Static)
    return FlagError{flags.name_of(option) +
                     " cannot protect the static backend, whose store speaks no TLS; give "
                     "--rdzv-backend c10d"};
  file = *given;
  return {};
}

/// Plans the certificates that a rendezvous on this node accepts. It serves one run only.
Checked<void> plan_tls_allow(const Flags& flags, RendezvousOptions& to) {
  if (!flags.rdzv_tls_allow) return {};
  const std::string name = flags.name_of(&Flags::rdzv_tls_allow);
  if (to.tls_certificate.empty())
    return FlagError{name +
                     " is for a rendezvous that this node hosts with TLS; give --rdzv-tls-ca, "
                     "--rdzv-tls-cert and --rdzv-tls-key, too"};
  auto allow = parse_tls_allow_names(*flags.rdzv_tls_allow);
  if (!allow) return FlagError{name + ": " + allow.error().reason};
  to.tls_allow = std::make_shared<const TlsAllow>(*std::move(allow));
  return {};
}

}  // namespace

Checked<void> plan_etcd(Conf& conf, RendezvousOptions& rendezvous, const std::string& flag) {
  auto prefix = take_setting(conf, "etcd_prefix");
  const auto short_name = take_setting(conf, "prefix");
  if (!prefix) prefix = short_name;
  auto parsed = parse_prefix(prefix.value_or(kDefaultPrefix), flag);
  if (!parsed) return parsed.error();
  rendezvous.etcd.prefix = *std::move(parsed);
  if (const auto lease = take_setting(conf, "host_lease")) {
    const auto seconds = parse_python_int(*lease);
    if (!seconds || *seconds < kLeastLeaseSeconds || *seconds > kMaxLeaseSeconds)
      return FlagError{flag + ": host_lease is " + python_repr(*lease) + ", but must be " +
                       std::to_string(kLeastLeaseSeconds) + " to " +
                       std::to_string(kMaxLeaseSeconds) + " seconds"};
    rendezvous.etcd.host_lease = std::chrono::seconds(*seconds);
  }
  // torchrun's limit for one rendezvous is `timeout` with etcd and join_timeout with its other
  // backends.
  if (auto timeout = take_setting(conf, "timeout"))
    conf.emplace("join_timeout", *std::move(timeout));
  // The agent reads user and password_file itself, from rendezvous.conf.
  for (const char* name : {"user", "password_file"})
    (void)take_setting(conf, name);
  return plan_etcd_tls(conf, rendezvous.etcd, flag);
}

Checked<void> plan_tls(const Flags& flags, RendezvousOptions& to) {
  const RendezvousBackend backend = to.backend;
  for (const auto& planned :
       {plan_tls_file(flags, &Flags::rdzv_tls_ca, backend, to.tls_ca),
        plan_tls_file(flags, &Flags::rdzv_tls_cert, backend, to.tls_certificate),
        plan_tls_file(flags, &Flags::rdzv_tls_key, backend, to.tls_key)})
    if (!planned) return planned;
  if (to.tls_certificate.empty() != to.tls_key.empty())
    return FlagError{"--rdzv-tls-cert and --rdzv-tls-key: a certificate needs its key; give both"};
  if (to.tls_ca.empty() && !to.tls_certificate.empty())
    return FlagError{
        "--rdzv-tls-cert: without the CA of the host's certificate anybody could pose as the host; "
        "give --rdzv-tls-ca, too"};
  if (backend == RendezvousBackend::Etcd && !to.tls_ca.empty() && to.tls_certificate.empty())
    return FlagError{
        "--rdzv-tls-ca: with the etcd backend every node may become the host, and needs a "
        "certificate as one; give --rdzv-tls-cert and --rdzv-tls-key, too"};
  return plan_tls_allow(flags, to);
}

Checked<void> plan_http(const Flags& flags, AgentOptions& plan) {
  if (!flags.http) return {};
  const std::string name = flags.name_of(&Flags::http);
  RendezvousOptions& rendezvous = plan.rendezvous;
  if (const auto address = http::parse_address(*flags.http); !address)
    return FlagError{name + ": " + address.error().reason};
  if (rendezvous.backend != RendezvousBackend::C10d)
    return FlagError{name +
                     " shows a run whose rendezvous is here, and the static backend has none; give "
                     "--rdzv-backend c10d, or --standalone"};
  if (!rendezvous.further.empty())
    return FlagError{name +
                     " is for a rendezvous that a muster hosts, and --rdzv-endpoint names several "
                     "musterds; start those with --http"};
  rendezvous.http = *flags.http;
  if (!rendezvous.standalone) return {};
  // The rendezvous has one node and listens on a free port of the loopback address.
  rendezvous.host = "127.0.0.1";
  rendezvous.port = 0;
  if (flags.rdzv_token_file) rendezvous.token_file = *flags.rdzv_token_file;
  const auto settings = make_settings({.run_id = plan.run_id,
                                       .max_restarts = plan.max_restarts,
                                       .restart_policy = plan.restart_policy},
                                      {});
  if (!settings) return FlagError{settings.error().reason};
  rendezvous.settings = *settings;
  rendezvous.settings.is_host = true;
  return {};
}

Checked<void> check_http_access(const Flags& flags, const RendezvousOptions& rendezvous) {
  if (rendezvous.http.empty() || rendezvous.token) return {};
  std::string refusal = http::refusal_without_token(flags.name_of(&Flags::http), rendezvous.http);
  if (!refusal.empty()) return FlagError{std::move(refusal)};
  return {};
}

}  // namespace muster
