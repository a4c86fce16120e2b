// A simulated machine for the tests of the plan, and functions that plan on it.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/argparse.h"
#include "launcher/launch_plan.h"

namespace muster::testing {

/// A machine on which these files are those that exist, or those that are executable.
inline FirstOfPaths first_of(const std::set<std::string>& programs) {
  return [&programs](const std::vector<std::string>& paths) {
    const auto found =
        std::find_if(paths.begin(), paths.end(),
                     [&programs](const std::string& path) { return programs.contains(path); });
    return found == paths.end() ? std::string() : *found;
  };
}

struct PlanFixture {
  Environment environment;
  std::string argv0 = "muster";
  int cpus = 8;
  std::optional<double> cpu_quota;
  int gpus = 0;
  int xpus = 0;
  std::set<std::string> programs = {"/usr/bin/python3"};
  std::set<std::string> files;
  std::string host_name = "node1";
  std::map<std::string, std::string> texts;  // The files that can be read.

  PlanFixture() { environment["PATH"] = "/usr/local/bin:/usr/bin"; }

  ParseOutcome parse(const std::vector<std::string>& words) const {
    return parse_command_line({.words = words,
                               .environment = environment,
                               .launch_module = program_name(argv0).launch_module});
  }
  Flags flags(const std::vector<std::string>& words) const {
    const ParseOutcome outcome = parse(words);
    if (const auto* error = std::get_if<UsageError>(&outcome)) FAIL(error->message);
    REQUIRE(std::holds_alternative<Flags>(outcome));
    return std::get<Flags>(outcome);
  }
  Checked<LaunchPlan> plan(const std::vector<std::string>& words) const {
    const NodeFacts facts{
        .cpus = [this] { return cpus; },
        .cpu_quota = [this] { return cpu_quota; },
        .gpus = [this] { return gpus; },
        .xpus = [this] { return xpus; },
        .new_run_id = [] { return std::string("new-id"); },
        .first_executable = first_of(programs),
        .first_existing = first_of(files),
        .argv0 = argv0,
        .host_name = [this] { return host_name; },
        .read_file = [this](const std::string& path) -> std::optional<std::string> {
          const auto found = texts.find(path);
          if (found == texts.end()) return std::nullopt;
          return found->second;
        },
    };
    return plan_launch(flags(words), environment, facts);
  }
  /// The plan. It must have no error.
  LaunchPlan good(const std::vector<std::string>& words) const {
    auto result = plan(words);
    if (!result) FAIL(result.error().message);
    return *std::move(result);
  }
  AgentOptions agent(const std::vector<std::string>& words) const { return good(words).agent; }
  /// The text of the error. There must be one.
  std::string error(const std::vector<std::string>& words) const {
    const auto result = plan(words);
    REQUIRE_FALSE(result.has_value());
    return result.error().message;
  }
  std::vector<std::string> warnings(const std::vector<std::string>& words) const {
    return good(words).warnings;
  }
  /// The text of the usage error. There must be one.
  std::string usage_error(const std::vector<std::string>& words) const {
    const ParseOutcome outcome = parse(words);
    REQUIRE(std::holds_alternative<UsageError>(outcome));
    return std::get<UsageError>(outcome).message;
  }
};

}  // namespace muster::testing
