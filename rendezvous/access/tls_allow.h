// --tls-allow: which client certificates may join, see and change which runs.
//
// Pure: the DNS names of a certificate identify it. docs/security.md says what the rules promise.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/system/result.hpp>

namespace muster {

/// DNS names of a client's certificate; further ones are ignored.
inline constexpr std::size_t kMaxPeerNames = 64;
inline constexpr std::size_t kMaxDnsNameBytes = 253;
/// Rules, and names in one rule.
inline constexpr std::size_t kMaxTlsAllowRules = 1'000;
inline constexpr std::size_t kMaxTlsAllowNames = 1'000;

/// The name in lower case. Empty if the text is no DNS name: it is empty, longer than
/// kMaxDnsNameBytes, or has other characters than letters, digits, '-', '_', '.' and '*'. So a name
/// of a certificate with a zero byte in it is no DNS name.
std::optional<std::string> to_dns_name(std::string_view text);

/// The runs that one client may join.
struct RunScope {
  bool all = true;
  /// Unless `all`: run ids; with '*' at the end, beginnings of run ids.
  std::vector<std::string> patterns = {};

  bool admits(std::string_view run) const;
  auto operator<=>(const RunScope&) const = default;
};

class TlsAllow {
 public:
  struct Rule {
    std::string runs;       // As in RunScope::patterns.
    bool any_name = false;  // The rule applies to every certificate of the CA.
    /// Made by to_dns_name(). "*.REST" matches one label and REST.
    std::set<std::string> names = {};
  };

  TlsAllow() = default;  // Every certificate may join all runs.
  explicit TlsAllow(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  /// The runs for a certificate with these names, which to_dns_name() has made.
  RunScope scope_of(std::span<const std::string> names) const;

  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

struct TlsAllowError {
  std::string reason;  // Without the option's name.
};

/// Each text is RUN=NAME[,NAME...]. RUN is a run id, or the beginning of run ids followed by '*'.
/// NAME is a DNS name, "*.REST" or '*'. The last '=' is the separator: a run id may have one, too.
boost::system::result<TlsAllow, TlsAllowError> parse_tls_allow(std::span<const std::string> texts);

/// Parses "NAME[,NAME...]", for a host of one run.
boost::system::result<TlsAllow, TlsAllowError> parse_tls_allow_names(std::string_view text);

/// The text for a client that may not join the run.
std::string not_in_scope_text(std::string_view run, std::span<const std::string> names);

}  // namespace muster
