// Parses the flags about the rendezvous: node counts, endpoints, --rdzv-conf.
//
// Pure. `flag` is the flag's name for error messages.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/flag_error.h"

namespace muster {

struct NodeRange {
  int min = 1;
  int max = 1;
};
/// "2" or "1:4".
Checked<NodeRange> parse_nnodes(std::string_view text, const std::string& flag);

struct Endpoint {
  std::string host;  // Without brackets.
  std::optional<int> port;
  bool operator==(const Endpoint&) const = default;
};
/// Accepts "host", "host:port", "[v6]", "[v6]:port" and, unlike torchrun, a bare IPv6 address. An
/// address with a port ("fe80::1:29400") is read as torchrun reads it.
Checked<Endpoint> parse_endpoint(std::string_view text, const std::string& flag);
inline constexpr std::size_t kMaxEndpoints = 16;
/// Parses one endpoint or, unlike torchrun, several different ones with commas between them.
Checked<std::vector<Endpoint>> parse_endpoints(std::string_view text, const std::string& flag);
/// Parses exactly one endpoint.
Checked<std::vector<Endpoint>> parse_one_endpoint(std::string_view text, const std::string& flag);
/// "host" or "host:port", with an IPv6 address in brackets.
std::string to_text(const Endpoint& endpoint);

struct RendezvousConf {
  std::map<std::string, std::string> values;
  std::vector<std::string> without_effect;  // Keys that this backend does not read.
};
/// Parses "key=value,key=value" for the named backend and checks the values.
Checked<RendezvousConf> parse_rendezvous_conf(std::string_view text, std::string_view backend,
                                              const std::string& flag);

}  // namespace muster
