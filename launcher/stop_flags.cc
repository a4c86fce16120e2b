#include "launcher/stop_flags.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "agent/core/signal_name.h"
#include "base/python_text.h"
#include "launcher/stream_flags.h"

namespace muster {
namespace {

using Outcome = Checked<void>;

constexpr std::int64_t kMaxSeconds = 1'000'000'000;  // 64-bit nanoseconds hold 9 times it.

Duration to_duration(double seconds) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(seconds, static_cast<double>(kMaxSeconds)) * 1000));
}

Outcome plan_signals(const Flags& flags, LaunchPlan& plan) {
  const std::string name = flags.name_of(&Flags::signals_to_handle);
  const auto signals = parse_signals(flags.signals_to_handle, name);
  if (!signals) return signals.error();
  plan.agent.signals_to_handle = signals->numbers;
  plan.agent.signals_to_handle_text = flags.signals_to_handle;
  for (const std::string& unknown : signals->unknown)
    plan.warnings.push_back(name + ": there is no signal " + python_repr(unknown) +
                            "; names are such as SIGTERM and SIGUSR1");
  return {};
}

/// After plan_signals().
Outcome plan_forwarded_signals(const Flags& flags, LaunchPlan& plan) {
  AgentOptions& agent = plan.agent;
  const auto is_handled = [&agent](int number) {
    return std::count(agent.signals_to_handle.begin(), agent.signals_to_handle.end(), number) > 0;
  };
  if (!flags.signals_to_forward) {
    if (!is_handled(SIGUSR1)) agent.signals_to_forward = {SIGUSR1};
    return {};
  }
  const std::string name = flags.name_of(&Flags::signals_to_forward);
  agent.forwards_ignored = true;
  if (flags.signals_to_forward->empty()) return {};
  const auto signals = parse_signals(*flags.signals_to_forward, name);
  if (!signals) return signals.error();
  for (const std::string& unknown : signals->unknown)
    plan.warnings.push_back(name + ": there is no signal " + python_repr(unknown) +
                            "; names are such as SIGUSR1 and SIGRTMIN");
  for (const int number : signals->numbers) {
    if (is_handled(number))
      return FlagError{name + " has " + signal_name(number) + ", which " +
                       flags.name_of(&Flags::signals_to_handle) +
                       " has, too: it either ends the job or does not"};
    if (number == SIGINT || number == SIGTSTP || number == SIGCONT)
      return FlagError{name + " has " + signal_name(number) +
                       ", which ends, stops or continues the job in any case; leave it out"};
  }
  agent.signals_to_forward = signals->numbers;
  return {};
}

Outcome plan_shutdown_timeout(const Flags& flags, const Environment& environment,
                              LaunchPlan& plan) {
  std::int64_t seconds = 30;
  const auto variable = environment.find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (flags.shutdown_timeout) {
    seconds = *flags.shutdown_timeout;
    if (seconds < 0)
      return FlagError{flags.name_of(&Flags::shutdown_timeout) + " is " + std::to_string(seconds) +
                       ": it must be 0 seconds or more"};
  } else if (variable != environment.end() && !variable->second.empty()) {
    const std::string& text = variable->second;
    const auto number = parse_python_int(text);
    if (!number)
      return FlagError{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT is " + python_repr(text) +
                       ": it must be a whole number of seconds"};
    seconds = *number;
    if (seconds < 0)
      plan.warnings.push_back("TORCH_ELASTIC_SHUTDOWN_TIMEOUT is " + text + ": taken as 0");
  }
  plan.agent.signal_to_leader = flags.signal_to == "leader";
  plan.agent.shutdown_timeout =
      std::chrono::seconds(std::clamp<std::int64_t>(seconds, 0, kMaxSeconds));
  return {};
}

Outcome plan_leftover_timeout(const Flags& flags, LaunchPlan& plan) {
  if (!flags.leftover_timeout) return {};
  if (!(*flags.leftover_timeout >= 0))  // Also true for NaN.
    return FlagError{flags.name_of(&Flags::leftover_timeout) +
                     " must be a number of seconds, 0 or more"};
  plan.agent.leftover_timeout = to_duration(*flags.leftover_timeout);
  return {};
}

Outcome plan_hang_timeout(const Flags& flags, LaunchPlan& plan) {
  if (!flags.hang_timeout) return {};
  if (!(*flags.hang_timeout > 0))  // Also true for NaN.
    return FlagError{flags.name_of(&Flags::hang_timeout) + " must be a number of seconds above 0"};
  plan.agent.hang_timeout = to_duration(std::max(*flags.hang_timeout, 0.001));
  return {};
}

}  // namespace

Checked<void> plan_stop(const Flags& flags, const Environment& environment, LaunchPlan& plan) {
  if (auto done = plan_signals(flags, plan); !done) return done.error();
  if (auto done = plan_forwarded_signals(flags, plan); !done) return done.error();
  if (auto done = plan_shutdown_timeout(flags, environment, plan); !done) return done.error();
  if (auto done = plan_leftover_timeout(flags, plan); !done) return done.error();
  return plan_hang_timeout(flags, plan);
}

}  // namespace muster
