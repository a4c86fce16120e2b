#include "rendezvous/rounds/restart_policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>

#include "base/nearest_name.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 3> kBudgets = {"failures", "hangs", "nodes"};

constexpr std::size_t kMaxShownBytes = 40;

/// The beginning of what a user has written.
std::string quoted(std::string_view text) {
  return "\"" + std::string(text.substr(0, kMaxShownBytes)) + "\"";
}

std::string unknown_budget(std::string_view name) {
  const std::string_view nearest = nearest_name(name, kBudgets);
  const std::string text = "has " + quoted(name) + ": ";
  if (!nearest.empty()) return text + "did you mean " + std::string(nearest) + "?";
  return text + "the budgets are failures, hangs and nodes, as in failures=3,hangs=2,nodes=10";
}

std::optional<int> budget_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number < 0 || number > kMaxRestartBudget) return std::nullopt;
  return number;
}

}  // namespace

boost::system::result<RestartPolicyText, std::string> parse_restart_policy(std::string_view text) {
  RestartPolicyText read{.policy = {.on = true}};
  if (text.empty()) return std::string("is empty: give budgets, as in failures=3,hangs=2,nodes=10");
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const std::size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    if (std::find(kBudgets.begin(), kBudgets.end(), name) == kBudgets.end())
      return unknown_budget(name);
    const auto number =
        equals == std::string_view::npos ? std::nullopt : budget_of(item.substr(equals + 1));
    if (!number)
      return "has " + quoted(item) + ": " + std::string(name) + " needs a whole number from 0 to " +
             std::to_string(kMaxRestartBudget) + ", as in " + std::string(name) + "=3";
    std::optional<int>& budget = name == kBudgets[0]   ? read.failures
                                 : name == kBudgets[1] ? read.policy.hangs
                                                       : read.policy.nodes;
    if (budget) return "has " + std::string(name) + " twice";
    budget = number;
  }
  return read;
}

std::string to_string(const RestartPolicy& policy) {
  if (!policy.on) return "off";
  std::string text;
  if (policy.hangs) text = "hangs=" + std::to_string(*policy.hangs);
  if (policy.nodes) text += (text.empty() ? "nodes=" : ",nodes=") + std::to_string(*policy.nodes);
  return text.empty() ? "on" : text;
}

std::optional<RestartPolicy> read_restart_policy(std::string_view text) {
  if (text == "off") return RestartPolicy{};
  if (text == "on") return RestartPolicy{.on = true};
  const auto read = parse_restart_policy(text);
  if (!read || read->failures) return std::nullopt;
  return read->policy;
}

}  // namespace muster
