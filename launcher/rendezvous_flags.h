// What the flags about the rendezvous say: node counts, endpoints, --rdzv-conf.
//
// Pure. `flag` is how to name the flag in an error.
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
/// "host", "host:port", "[v6]", "[v6]:port", and, other than torchrun, a bare IPv6 address. What
/// torchrun reads as address and port ("fe80::1:29400") stays that.
Checked<Endpoint> parse_endpoint(std::string_view text, const std::string& flag);
inline constexpr std::size_t kMostEndpoints = 16;
/// One, or several with commas between them, each once: other than torchrun.
Checked<std::vector<Endpoint>> parse_endpoints(std::string_view text, const std::string& flag);
/// The same for one.
Checked<std::vector<Endpoint>> parse_one_endpoint(std::string_view text, const std::string& flag);
/// "host" or "host:port", an IPv6 address in brackets.
std::string to_text(const Endpoint& endpoint);

struct RendezvousConf {
  std::map<std::string, std::string> values;
  std::vector<std::string> without_effect;  // Keys that this backend does not read.
};
/// "key=value,key=value" for the named backend, values checked.
Checked<RendezvousConf> parse_rendezvous_conf(std::string_view text, std::string_view backend,
                                              const std::string& flag);

}  // namespace muster
