#include "launcher/rendezvous_flags.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/nearest_name.h"
#include "base/python_text.h"
#include "base/whole_number.h"
#include "launcher/node_limit.h"

namespace muster {
namespace {

bool is_ipv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));  // Without a scope such as "%eth0".
  in6_addr parsed{};
  return inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

/// Whether the text looks like a host name or an address. A name may contain non-ASCII letters.
bool is_host(std::string_view text) {
  if (text.empty()) return false;
  if (is_ipv6(text)) return true;
  for (const char c : text) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || static_cast<unsigned char>(c) >= 0x80;
    if (!word && c != '.' && c != ':' && c != '-') return false;
  }
  return true;
}

std::optional<int> port_from(std::string_view text) {
  return text.size() <= 5 ? whole_number<std::uint16_t>(text) : std::nullopt;
}

enum class ValueKind : std::uint8_t {
  Text,
  Count,
  Positive,
  Delay,
  Boolean,
  StoreType,
  Protocol,
  ScalePolicy,
  OnNotice
};
// Bits for the backends that read a key.
constexpr int kC10d = 1;
constexpr int kStatic = 2;
constexpr int kEtcdV2 = 4;
constexpr int kEtcd = 8;
constexpr int kBothEtcd = kEtcdV2 | kEtcd;

struct ConfKey {
  std::string_view name;
  ValueKind kind;
  int backends;
};

// Source: torch/distributed/elastic/rendezvous of 2.15.0, all of its backends.
constexpr ConfKey kConfKeys[] = {
    {"ca_cert", ValueKind::Text, kEtcdV2},
    {"cacert", ValueKind::Text, kEtcd},
    {"cas_backoff_max_seconds", ValueKind::Delay, kC10d},
    {"cert", ValueKind::Text, kEtcd},
    {"close_timeout", ValueKind::Positive, kC10d | kBothEtcd},
    {"etcd_prefix", ValueKind::Text, kBothEtcd},
    {"heartbeat_timeout", ValueKind::Positive, kC10d | kEtcdV2},
    {"host_absent", ValueKind::Positive, kC10d | kBothEtcd},  // muster's own.
    {"host_lease", ValueKind::Positive, kBothEtcd},           // muster's own.
    {"is_host", ValueKind::Boolean, kC10d},
    {"join_timeout", ValueKind::Positive, kC10d | kBothEtcd},
    {"keep_alive_interval", ValueKind::Count, kC10d | kEtcdV2},
    {"keep_alive_max_attempt", ValueKind::Count, kC10d | kEtcdV2},
    {"key", ValueKind::Text, kEtcd},
    {"last_call_timeout", ValueKind::Positive, kC10d | kBothEtcd},
    {"lease", ValueKind::Positive, kC10d | kBothEtcd},  // muster's own, as scale_policy and spare.
    {"on_notice", ValueKind::OnNotice, kC10d | kBothEtcd},  // muster's own.
    {"password_file", ValueKind::Text, kBothEtcd},          // muster's own, as user.
    {"prefix", ValueKind::Text, kBothEtcd},                 // muster's own name for etcd_prefix.
    {"protocol", ValueKind::Protocol, kBothEtcd},
    {"rank", ValueKind::Count, 0},
    {"read_timeout", ValueKind::Positive, kC10d | kBothEtcd},
    {"scale_policy", ValueKind::ScalePolicy, kC10d | kBothEtcd},
    {"spare", ValueKind::Boolean, kC10d | kBothEtcd},
    {"ssl_cert", ValueKind::Text, kEtcdV2},
    {"ssl_cert_key", ValueKind::Text, kEtcdV2},
    {"store_type", ValueKind::StoreType, kC10d},
    {"timeout", ValueKind::Positive, kStatic | kEtcd},
    {"user", ValueKind::Text, kBothEtcd},
    {"use_libuv", ValueKind::Boolean, 0},
    {"heartbeat", ValueKind::Text, 0},  // PyTorch documents this key, but no backend reads it.
};

const ConfKey* find_key(std::string_view name) {
  for (const ConfKey& key : kConfKeys)
    if (key.name == name) return &key;
  return nullptr;
}

int backend_bit(std::string_view backend) {
  if (backend == "c10d") return kC10d;
  if (backend == "static") return kStatic;
  if (backend == "etcd-v2") return kEtcdV2;
  return backend == "etcd" ? kEtcd : 0;
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    if (word == text) return true;
  return false;
}

bool is_delay(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

/// The end of an error message, such as "must be true or false"; nothing if the value is valid.
std::optional<std::string_view> complaint(ValueKind kind, std::string_view value) {
  const auto number = parse_python_int(value);
  switch (kind) {
    case ValueKind::Text:
      return std::nullopt;
    case ValueKind::Count:
      if (!number) return "must be an integer";
      return std::nullopt;
    case ValueKind::Positive:
      if (!number || *number <= 0) return "must be an integer above 0";
      return std::nullopt;
    case ValueKind::Delay:
      if (const auto delay = parse_python_float(value); !delay || !is_delay(*delay))
        return "must be a finite number of seconds, 0 or more";
      return std::nullopt;
    case ValueKind::Boolean:
      if (is_one_of(lower(value), {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"}))
        return std::nullopt;
      return "must be true or false";
    case ValueKind::StoreType:
      if (is_one_of(lower(value), {"tcp", "file"})) return std::nullopt;
      return "must be tcp or file";
    case ValueKind::Protocol:
      if (is_one_of(lower(value), {"http", "https"})) return std::nullopt;
      return "must be http or https";
    case ValueKind::ScalePolicy:
      if (is_one_of(value, {"now", "at-restart", "never"})) return std::nullopt;
      return "must be now, at-restart or never";
    case ValueKind::OnNotice:
      if (is_one_of(value, {"auto", "stop", "shrink"})) return std::nullopt;
      return "must be auto, stop or shrink";
  }
  return std::nullopt;
}

std::vector<std::string_view> names_of_keys(std::string_view backend) {
  std::vector<std::string_view> names;
  for (const ConfKey& key : kConfKeys)
    if ((key.backends & backend_bit(backend)) != 0) names.push_back(key.name);
  return names;
}

std::string known_keys(std::string_view backend) {
  std::string text;
  for (const std::string_view name : names_of_keys(backend))
    text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

/// Removes quotes around the whole text, which a script adds if it quotes twice. Under torchrun
/// such quotes become part of the first name and of the last value, and neither setting has an
/// effect.
std::string_view without_quotes(std::string_view text) {
  const bool quoted = text.size() > 1 && text.front() == text.back() &&
                      (text.front() == '\'' || text.front() == '"');
  return quoted ? strip(text.substr(1, text.size() - 2)) : text;
}

}  // namespace

Checked<NodeRange> parse_nnodes(std::string_view text, const std::string& flag) {
  const auto parts = split(text, ':');
  const auto min = parse_python_int(parts.front());
  const auto max = parse_python_int(parts.back());
  if (parts.size() > 2 || !min || !max)
    return FlagError{flag + " is " + python_repr(text) +
                     ": give a number of nodes, or MIN:MAX as in 1:4"};
  if (*min <= 0 || *min > *max)
    return FlagError{flag + " is " + python_repr(text) +
                     ": the smallest number of nodes must be above 0 and not above the largest"};
  if (*max > kMaxNodes)
    return FlagError{flag + " is " + python_repr(text) + ": at most " + std::to_string(kMaxNodes) +
                     " nodes"};
  return NodeRange{.min = static_cast<int>(*min), .max = static_cast<int>(*max)};
}

Checked<Endpoint> parse_endpoint(std::string_view text, const std::string& flag) {
  text = strip(text);
  if (text.empty()) return Endpoint{.host = "localhost", .port = {}};
  std::string_view host = text;
  std::optional<std::string_view> port_text;
  const auto colon = text.rfind(':');
  const bool all_brackets = text.front() == '[' && text.back() == ']';
  // torchrun splits a bare IPv6 address at its last colon ("::1" is host ":", port 1). muster
  // splits it only if the part before the colon is an address by itself.
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos)
    return FlagError{flag + " is " + python_repr(text) + ": give HOST:PORT, without " +
                     python_repr(text.substr(0, scheme + 3))};
  const bool bare_ipv6 = is_ipv6(text) && !is_ipv6(text.substr(0, colon));
  if (colon != std::string_view::npos && !all_brackets && !bare_ipv6) {
    host = text.substr(0, colon);
    port_text = text.substr(colon + 1);
  }
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  Endpoint endpoint{.host = std::string(host), .port = {}};
  if (port_text) {
    endpoint.port = port_from(*port_text);
    if (!endpoint.port)
      return FlagError{flag + " is " + python_repr(text) + ": its port " + python_repr(*port_text) +
                       " must be a number from 0 to 65535"};
  }
  if (!is_host(host))
    return FlagError{flag + " is " + python_repr(text) + ": " + python_repr(host) +
                     " is no host name or address; give HOST:PORT or [IPV6]:PORT"};
  return endpoint;
}

Checked<std::vector<Endpoint>> parse_one_endpoint(std::string_view text, const std::string& flag) {
  auto endpoint = parse_endpoint(text, flag);
  if (!endpoint) return endpoint.error();
  return std::vector<Endpoint>{*std::move(endpoint)};
}

Checked<std::vector<Endpoint>> parse_endpoints(std::string_view text, const std::string& flag) {
  if (text.find(',') == std::string_view::npos) return parse_one_endpoint(text, flag);
  std::vector<Endpoint> endpoints;
  for (const std::string_view part : split(text, ',')) {
    if (strip(part).empty())
      return FlagError{
          flag + " is " + python_repr(text) +
          ": an endpoint is missing before or after a comma; give HOST:PORT,HOST:PORT"};
    auto endpoint = parse_endpoint(part, flag);
    if (!endpoint) return endpoint.error();
    if (std::find(endpoints.begin(), endpoints.end(), *endpoint) != endpoints.end())
      return FlagError{flag + " is " + python_repr(text) + ": it names " + to_text(*endpoint) +
                       " twice"};
    endpoints.push_back(*std::move(endpoint));
  }
  if (endpoints.size() > kMaxEndpoints)
    return FlagError{flag + " names " + std::to_string(endpoints.size()) + " endpoints: at most " +
                     std::to_string(kMaxEndpoints)};
  return endpoints;
}

std::string to_text(const Endpoint& endpoint) {
  std::string text = endpoint.host;
  if (text.find(':') != std::string::npos) text = "[" + text + "]";
  if (endpoint.port) text.append(":").append(std::to_string(*endpoint.port));
  return text;
}

Checked<RendezvousConf> parse_rendezvous_conf(std::string_view text, std::string_view backend,
                                              const std::string& flag) {
  RendezvousConf conf;
  text = without_quotes(strip(text));
  if (text.empty()) return conf;
  for (const std::string_view part : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string_view name = strip(part.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : strip(part.substr(equals + 1));
    if (name.empty())
      return FlagError{flag + " is " + python_repr(text) +
                       ": a setting has no name; write KEY=VALUE,KEY=VALUE"};
    if (value.empty())
      return FlagError{flag + ": " + std::string(name) + " has no value; write " +
                       std::string(name) + "=VALUE"};
    const ConfKey* key = find_key(name);
    if (key == nullptr)
      return FlagError{flag + ": there is no setting " + python_repr(name) +
                       did_you_mean(name, names_of_keys(backend)) + "; " + std::string(backend) +
                       " has " + known_keys(backend)};
    if (const auto wrong = complaint(key->kind, value))
      return FlagError{flag + ": " + std::string(name) + " is " + python_repr(value) + ", but " +
                       std::string(*wrong)};
    if ((key->backends & backend_bit(backend)) == 0) conf.without_effect.emplace_back(name);
    conf.values.insert_or_assign(std::string(name), std::string(value));
  }
  return conf;
}

}  // namespace muster
