#include "launcher/restart_flags.h"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace muster {

Checked<void> plan_restarts(const Flags& flags, AgentOptions& agent) {
  if (flags.progress_file && flags.progress_file->empty())
    return FlagError{flags.name_of(&Flags::progress_file) + " is empty: it must name a file"};
  if (flags.progress_file) {
    std::error_code error;
    const auto path = std::filesystem::absolute(*flags.progress_file, error);
    agent.progress_file = error ? *flags.progress_file : path.lexically_normal().string();
  }
  if (!flags.restart_policy) return {};
  const std::string name = flags.name_of(&Flags::restart_policy);
  const auto read = parse_restart_policy(*flags.restart_policy);
  if (!read) return FlagError{name + " " + read.error()};
  agent.restart_policy = read->policy;
  const std::optional<int>& failures = read->failures;
  if (!failures) return {};
  const bool both = flags.source(&Flags::max_restarts) != Source::Default;
  if (both && agent.max_restarts != *failures)
    return FlagError{name + " has failures=" + std::to_string(*failures) + ", and " +
                     flags.name_of(&Flags::max_restarts) + " is " +
                     std::to_string(agent.max_restarts) +
                     ": both are the budget of failures; leave out one of the two"};
  agent.max_restarts = *failures;
  return {};
}

}  // namespace muster
