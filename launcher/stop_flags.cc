#include "launcher/stop_flags.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "agent/core/node_notice.h"
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

/// After plan_signals() and plan_notices().
Outcome plan_forwarded_signals(const Flags& flags, LaunchPlan& plan) {
  AgentOptions& agent = plan.agent;
  const auto is_handled = [&agent](int number) {
    return std::count(agent.signals_to_handle.begin(), agent.signals_to_handle.end(), number) > 0;
  };
  const auto is_notice = [&agent](int number) {
    return std::any_of(agent.notice_signals.begin(), agent.notice_signals.end(),
                       [number](const NoticeSignal& notice) { return notice.number == number; });
  };
  if (!flags.signals_to_forward) {
    if (!is_handled(SIGUSR1) && !is_notice(SIGUSR1)) agent.signals_to_forward = {SIGUSR1};
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
    if (is_notice(number))
      return FlagError{name + " has " + signal_name(number) + ", which " +
                       flags.name_of(&Flags::notice_signals) +
                       " has, too: it is either passed on or announces that this node goes"};
    if (number == SIGINT || number == SIGTSTP || number == SIGCONT)
      return FlagError{name + " has " + signal_name(number) +
                       ", which ends, stops or continues the job in any case; leave it out"};
  }
  agent.signals_to_forward = signals->numbers;
  return {};
}

/// The seconds of a notice, as a flag or after the @ of a signal.
std::optional<Duration> notice_time(double seconds) {
  const double most = std::chrono::duration<double>(kMaxNoticeTime).count();
  if (!(seconds >= 0 && seconds <= most)) return std::nullopt;  // Also for NaN.
  return to_duration(seconds);
}

std::optional<Duration> notice_time(std::string_view text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return notice_time(seconds);
}

/// One item of --notice-signals: SIGUSR1@120, or SIGUSR1.
Checked<NoticeSignal> read_notice_signal(const std::string& name, std::string_view item,
                                         Duration without_time) {
  const std::size_t at = item.find('@');
  const auto signals = parse_signals(item.substr(0, at), name);
  if (!signals) return signals.error();
  if (signals->numbers.size() != 1)
    return FlagError{name + ": there is no signal " + python_repr(item.substr(0, at)) +
                     "; an item is such as SIGUSR1@120"};
  const auto left = at == std::string_view::npos ? without_time : notice_time(item.substr(at + 1));
  if (!left)
    return FlagError{name + " has " + python_repr(item) +
                     ": the time after @ must be a number of seconds from 0 to 604800"};
  return NoticeSignal{signals->numbers.front(), *left};
}

/// After plan_signals(), and before plan_forwarded_signals().
Outcome plan_notices(const Flags& flags, LaunchPlan& plan) {
  AgentOptions& agent = plan.agent;
  agent.notice_from = flags.notice_from.value_or("");
  if (flags.notice_seconds) {
    const auto left = notice_time(*flags.notice_seconds);
    if (!left)
      return FlagError{flags.name_of(&Flags::notice_seconds) +
                       " must be a number of seconds from 0 to 604800"};
    agent.notice_left = *left;
  }
  const std::string name = flags.name_of(&Flags::notice_signals);
  std::string_view rest = flags.notice_signals ? std::string_view(*flags.notice_signals) : "";
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const auto signal = read_notice_signal(name, rest.substr(0, comma), agent.notice_left);
    if (!signal) return signal.error();
    const int number = signal->number;
    const auto& handled = agent.signals_to_handle;
    if (std::count(handled.begin(), handled.end(), number) > 0)
      return FlagError{name + " has " + signal_name(number) + ", which " +
                       flags.name_of(&Flags::signals_to_handle) +
                       " has, too: it either ends the job or announces that this node goes"};
    if (number == SIGINT || number == SIGTSTP || number == SIGCONT)
      return FlagError{name + " has " + signal_name(number) +
                       ", which ends, stops or continues the job in any case; leave it out"};
    for (const NoticeSignal& other : agent.notice_signals)
      if (other.number == number) return FlagError{name + " has " + signal_name(number) + " twice"};
    agent.notice_signals.push_back(*signal);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
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
  if (auto done = plan_notices(flags, plan); !done) return done.error();
  if (auto done = plan_forwarded_signals(flags, plan); !done) return done.error();
  if (auto done = plan_shutdown_timeout(flags, environment, plan); !done) return done.error();
  if (auto done = plan_leftover_timeout(flags, plan); !done) return done.error();
  return plan_hang_timeout(flags, plan);
}

}  // namespace muster
