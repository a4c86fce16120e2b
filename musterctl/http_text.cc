#include "musterctl/http_text.h"

#include <charconv>

#include "base/percent.h"

namespace muster::ctl {

std::string Endpoint::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

boost::system::result<Endpoint, ClientError> parse_endpoint(std::string_view text) {
  ClientError wrong{"'" + std::string(text.substr(0, 200)) +
                    "' is not HOST:PORT, as in localhost:9400 or [::1]:9400"};
  for (const std::string_view scheme : {"http://", "https://"})
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  if (text.ends_with('/')) text.remove_suffix(1);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  Endpoint endpoint;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  const bool bad_port = parsed.ec != std::errc() || parsed.ptr != port.data() + port.size();
  const bool bad_host = host.empty() || host.find('/') != std::string_view::npos ||
                        (!brackets && host.find(':') != std::string_view::npos);
  if (bad_port || bad_host || endpoint.port == 0) return wrong;
  endpoint.host = host;
  return endpoint;
}

std::string nonce_of(std::string_view challenge) {
  constexpr std::string_view kBegin = "Muster nonce=\"";
  if (!challenge.starts_with(kBegin)) return {};
  challenge.remove_prefix(kBegin.size());
  const std::size_t end = challenge.find_first_not_of("0123456789abcdef");
  return end != std::string_view::npos && challenge[end] == '"'
             ? std::string(challenge.substr(0, end))
             : std::string();
}

std::string percent_encoded(std::string_view text) {
  return percent_encode(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace muster::ctl
