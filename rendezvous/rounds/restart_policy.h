// --restart-policy: how often a job is restarted, by the cause of the restart.
//
// The budget of failures is RunSettings::max_restarts. Pure. docs/supervision.md, "Restarts".
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "base/time.h"

namespace muster {

/// A job whose last attempts have ended before any progress: so many in a row end it.
inline constexpr int kAttemptsWithoutProgress = 3;
/// In a job that has told no progress yet, an attempt that ends within this time has made none.
inline constexpr Duration kShortAttempt = std::chrono::minutes(1);
/// The wait before the first restart. Each further one without progress between is twice as long.
inline constexpr Duration kFirstRestartWait = std::chrono::seconds(1);
inline constexpr Duration kLongestRestartWait = std::chrono::minutes(1);
inline constexpr int kMaxRestartBudget = 1'000'000;
inline constexpr std::size_t kMaxPolicyBytes = 64;  // Of to_string().

struct RestartPolicy {
  /// False: one budget, as under torchrun, and restarts follow at once.
  bool on = false;
  /// Empty: a hang costs the budget of failures.
  std::optional<int> hangs = {};
  /// Empty: lost nodes cost nothing.
  std::optional<int> nodes = {};
  /// Whether a hang costs a budget of its own.
  bool counts_hangs() const { return on && hangs.has_value(); }
  bool counts_nodes() const { return on && nodes.has_value(); }
  bool operator==(const RestartPolicy&) const = default;
};

struct RestartBudgets {
  int failures = 0;  // --max-restarts
  RestartPolicy policy = {};
};

/// A policy as a user writes it: "failures=3,hangs=2,nodes=10".
struct RestartPolicyText {
  std::optional<int> failures = {};
  RestartPolicy policy = {};
};
/// The error is the end of a sentence that begins with the option's name: "has \"x\": …".
boost::system::result<RestartPolicyText, std::string> parse_restart_policy(std::string_view text);

/// Without the failures: "off", "on", "hangs=2,nodes=10".
std::string to_string(const RestartPolicy& policy);
/// The policy that to_string() has written. Empty if the text is not such a policy.
std::optional<RestartPolicy> read_restart_policy(std::string_view text);

}  // namespace muster
