// muster: from the command line to the exit status. Under the name torchrun it is the same; under
// the name muster-launch it behaves as `python -m torch.distributed.launch`.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include <spdlog/spdlog.h>

#include "agent/io/agent.h"
#include "agent/posix/shim.h"
#include "launcher/argparse.h"
#include "launcher/devices.h"
#include "launcher/dry_run.h"
#include "launcher/flags.h"
#include "launcher/help.h"
#include "launcher/launch_plan.h"
#include "launcher/log_setup.h"

namespace muster {
namespace {

constexpr int kUsageExit = 2;    // argparse's.
constexpr int kFailureExit = 1;  // torchrun's, for everything else.

std::vector<std::string> inherited_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry)
    variables.emplace_back(*entry);
  return variables;
}

// As getenv sees it: of a name that occurs twice the first counts.
Environment as_map(const std::vector<std::string>& variables) {
  Environment environment;
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals != std::string::npos)
      environment.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return environment;
}

int usage_error(const ProgramName& program, const std::string& message) {
  std::fprintf(stderr, "%s\n%s: error: %s\n", usage(program).c_str(), program.shown.c_str(),
               message.c_str());
  return kUsageExit;
}

int launch(const LaunchPlan& plan, std::vector<std::string> environment) {
  return split_into_shim_and_agent({.signals = plan.agent.signals_to_handle}, [&](int socket) {
    return run_agent(plan.agent, std::move(environment), socket);
  });
}

int run(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  const std::string argv0 = argc > 0 ? argv[0] : "muster";
  const ProgramName program = program_name(argv0);
  std::vector<std::string> variables = inherited_environment();
  const Environment environment = as_map(variables);

  const ParseOutcome outcome = parse_command_line({words, environment, program.launch_module});
  if (const auto* error = std::get_if<UsageError>(&outcome))
    return usage_error(program, error->message);
  if (const auto* exit = std::get_if<EarlyExit>(&outcome))
    return print_and_exit(*exit, program, environment);

  const Flags flags = flags_from(std::get<CommandLine>(outcome), program.launch_module);
  if (const auto reason = unsupported(flags)) return usage_error(program, *reason);
  set_up_logging(environment);
  const Checked<LaunchPlan> plan = plan_launch(flags, environment, node_facts(environment, argv0));
  if (!plan) {
    spdlog::error("{}", plan.error().message);
    return kFailureExit;
  }
  for (const std::string& warning : plan->warnings)
    spdlog::warn("{}", warning);
  for (const std::string& notice : plan->notices)
    spdlog::warn("{}", notice);
  if (flags.dry_run) return print_dry_run(*plan, variables);
  return launch(*plan, std::move(variables));
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  try {
    return muster::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster: %s\n", error.what());
    return 1;
  }
}
