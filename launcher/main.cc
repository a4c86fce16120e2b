// muster: from the command line to the exit status. Under the name torchrun it is the same; under
// the name muster-launch it behaves as `python -m torch.distributed.launch`.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include <boost/system/system_error.hpp>
#include <spdlog/spdlog.h>

#include "agent/io/failure_output.h"
#include "agent/io/run_job.h"
#include "launcher/argparse.h"
#include "launcher/dry_run.h"
#include "launcher/flags.h"
#include "launcher/help.h"
#include "launcher/launch_plan.h"
#include "launcher/launch_text.h"
#include "launcher/log_setup.h"
#include "launcher/node_facts.h"
#include "launcher/rank_plans.h"
#include "rendezvous/core/limit_advice.h"

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

int fail(const std::string& message) {
  spdlog::error("{}", message);
  return kFailureExit;
}

// What was asked for cannot be done; whoever wants failures in files gets this one, too.
int refuse(const Flags& flags, const Environment& environment, const std::string& message) {
  ::signal(SIGPIPE, SIG_IGN);  // A file may be a FIFO whose reader goes.
  if (!flags.dry_run) {
    AgentOptions options;
    options.entry_point = flags.script;
    options.failure_report = flags.failure_report;
    options.own_error_file = own_error_file(flags, environment);
    report_early_end(options, refusal(message));
  }
  return fail(message);
}

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kFailureExit;
}

// bin/muster and share/muster/python/, in a build folder as where it is installed.
int print_python_entry() {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  const fs::path folder = program.parent_path().parent_path() / "share/muster/python";
  if (!fs::exists(folder / "muster_entry.py", ec))
    return fail("there is no " + (folder / "muster_entry.py").string() +
                ": it is installed with muster, beside bin/");
  return print(folder.string() + "\n");
}

int dry_run(const LaunchPlan& plan) {
  const auto ranks = plan_ranks(plan.agent, inherited_environment());
  if (!ranks) return fail(ranks.error().message);
  return print(dry_run_text(plan.agent, *ranks));
}

int run(int argc, char** argv) {
  const std::string argv0 = argc > 0 ? argv[0] : "muster";
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  const ProgramName program = program_name(argv0);
  const Environment environment = read_environment();

  const ParseOutcome outcome = parse_command_line({words, environment, program.launch_module});
  const auto* early = std::get_if<EarlyExit>(&outcome);
  if (early != nullptr && early->option == OptionId::PythonEntry) return print_python_entry();
  if (early != nullptr) return print(early_exit_text(*early, program, terminal_width(environment)));
  const auto usage_error = [&program](const std::string& message) {
    std::fputs(usage_error_text(program, message).c_str(), stderr);
    return kUsageExit;
  };
  if (const auto* error = std::get_if<UsageError>(&outcome)) return usage_error(error->message);
  const Flags flags = flags_from(std::get<CommandLine>(outcome), program.launch_module);
  if (const auto reason = unsupported(flags)) return usage_error(*reason);

  set_up_logging(environment);
  const Checked<LaunchPlan> plan = plan_launch(flags, environment, node_facts(environment, argv0));
  if (!plan) return refuse(flags, environment, plan.error().message);
  for (const std::string& line : plan->warnings)
    spdlog::warn("{}", line);
  for (const std::string& line : plan->notices)
    spdlog::warn("{}", line);
  if (flags.dry_run) return dry_run(*plan);
  for (const std::string& line : launch_text(flags, plan->agent))
    spdlog::info("{}", line);
  return run_job(plan->agent, inherited_environment());
}

int fail_to_start(const char* what, int code) {
  std::fprintf(stderr, "muster: %s%s\n", what, start_limit_advice(code).c_str());
  return kFailureExit;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  try {
    return muster::run(argc, argv);
  } catch (const boost::system::system_error& error) {
    return muster::fail_to_start(error.what(), error.code().value());
  } catch (const std::system_error& error) {
    return muster::fail_to_start(error.what(), error.code().value());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster: %s\n", error.what());
    return muster::kFailureExit;
  }
}
