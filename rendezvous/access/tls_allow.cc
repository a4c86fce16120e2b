#include "rendezvous/access/tls_allow.h"

#include <algorithm>
#include <utility>

#include "rendezvous/rounds/limits.h"

namespace muster {
namespace {

constexpr std::string_view kAnyLabel = "*.";
constexpr std::string_view kAnyName = "*";
constexpr std::size_t kPeerNamesShown = 8;

bool is_dns_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
         c == '*';
}

/// Whether the rule has this name, or a "*.REST" that matches it.
bool lists(const TlsAllow::Rule& rule, const std::string& name) {
  if (rule.names.contains(name)) return true;
  const std::size_t dot = name.find('.');
  return dot != std::string::npos && rule.names.contains("*" + name.substr(dot));
}

/// Returns false if the text is not a name that a rule may have.
bool add_name(TlsAllow::Rule& rule, std::string_view text) {
  if (text == kAnyName) {
    rule.any_name = true;
    return true;
  }
  auto name = to_dns_name(text);
  if (!name) return false;
  const std::string_view labels =
      name->starts_with(kAnyLabel) ? std::string_view(*name).substr(kAnyLabel.size()) : *name;
  const bool whole = !labels.empty() && labels.front() != '.' && labels.back() != '.';
  if (!whole || labels.find('*') != std::string_view::npos) return false;
  rule.names.insert(*std::move(name));
  return true;
}

/// Adds the names of "NAME[,NAME...]". Returns an error text; empty if there is no error.
std::string add_names(TlsAllow::Rule& rule, std::string_view text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    begin = end + 1;
    if (!add_name(rule, name))
      return "'" + std::string(name) +
             "' is no DNS name; give a name as it stands in the certificate, '*.' and the rest of "
             "one, or '*' for every certificate of the CA";
    if (rule.names.size() > kMaxTlsAllowNames)
      return "it has more than " + std::to_string(kMaxTlsAllowNames) + " names";
  }
  return {};
}

boost::system::result<TlsAllow::Rule, TlsAllowError> parse_rule(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return TlsAllowError{"'" + std::string(text) + "': " + why};
  };
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos)
    return refuse("a rule is RUN=NAME[,NAME...], as in 'team-a-*=node1.example.org'");
  TlsAllow::Rule rule{.runs = std::string(text.substr(0, equals))};
  if (rule.runs.empty())
    return refuse("the run id in front of '=' is missing; '*' stands for all runs");
  if (rule.runs.size() > kMaxRunIdBytes + 1)
    return refuse("its run id is longer than " + std::to_string(kMaxRunIdBytes) + " bytes");
  if (const std::string wrong = add_names(rule, text.substr(equals + 1)); !wrong.empty())
    return refuse(wrong);
  return rule;
}

}  // namespace

std::optional<std::string> to_dns_name(std::string_view text) {
  if (text.empty() || text.size() > kMaxDnsNameBytes) return std::nullopt;
  std::string name(text);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (!is_dns_character(c)) return std::nullopt;
  }
  return name;
}

bool RunScope::admits(std::string_view run) const {
  return all || std::any_of(patterns.begin(), patterns.end(), [run](std::string_view pattern) {
           if (!pattern.ends_with('*')) return run == pattern;
           return run.starts_with(pattern.substr(0, pattern.size() - 1));
         });
}

RunScope TlsAllow::scope_of(std::span<const std::string> names) const {
  RunScope scope{.all = rules_.empty()};
  for (const Rule& rule : rules_)
    if (rule.any_name || std::any_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return lists(rule, name); }))
      scope.patterns.push_back(rule.runs);
  return scope;
}

boost::system::result<TlsAllow, TlsAllowError> parse_tls_allow(std::span<const std::string> texts) {
  if (texts.size() > kMaxTlsAllowRules)
    return TlsAllowError{"there are more than " + std::to_string(kMaxTlsAllowRules) + " rules"};
  std::vector<TlsAllow::Rule> rules;
  for (const std::string& text : texts) {
    auto rule = parse_rule(text);
    if (!rule) return rule.error();
    rules.push_back(*std::move(rule));
  }
  return TlsAllow(std::move(rules));
}

boost::system::result<TlsAllow, TlsAllowError> parse_tls_allow_names(std::string_view text) {
  TlsAllow::Rule rule{.runs = "*"};
  if (std::string wrong = add_names(rule, text); !wrong.empty())
    return TlsAllowError{std::move(wrong)};
  return TlsAllow({std::move(rule)});
}

std::string not_in_scope_text(std::string_view run, std::span<const std::string> names) {
  std::string text = "run " + std::string(run) + " is not for this client: its certificate has ";
  if (names.empty())
    return text + "no DNS names, by which the host knows its clients (--tls-allow)";
  text += "the DNS names ";
  for (std::size_t i = 0; i < std::min(names.size(), kPeerNamesShown); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kPeerNamesShown)
    text += " and " + std::to_string(names.size() - kPeerNamesShown) + " more";
  return text + ", and the host lets none of them into this run (--tls-allow)";
}

}  // namespace muster
