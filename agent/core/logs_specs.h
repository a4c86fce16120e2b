// --logs-specs NAME: what is asked of torchrun's plug-in, and what it answers.
//
// Pure: the lines of JSON between the agent and the program that has the plug-in in it
// (agent/io/logs_specs_program.h); the program's side is launcher/logs_specs.py.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/worker_env.h"

namespace muster {

/// An answer may be this long; who writes more is not what it should be.
inline constexpr std::size_t kMaxLogsSpecsBytes = 8 << 20;

/// What the plug-in's reify() returns, torch's LogsDest, by local rank; a path that is empty means
/// the console. And what it did to the workers' environments.
struct LogsDest {
  std::map<int, std::string> stdouts;  // One for each local rank, as of stderrs.
  std::map<int, std::string> stderrs;
  std::map<int, std::string> tee_stdouts;
  std::map<int, std::string> tee_stderrs;
  std::map<int, std::string> error_files;
  std::string filtered_stdout;
  std::string filtered_stderr;
  std::vector<EnvironmentChanges> environment;  // One for each local rank.
};

/// What is wrong, as a sentence for the user.
struct LogsSpecsError {
  std::string text;
};

/// The first line to the program: what it is to load, and what the plug-in is made with.
std::string logs_specs_begin(const LogsSpecsOptions& specs, const LogOptions& log);
/// Its answer: nothing to tell, or why there is no such plug-in.
boost::system::result<void, LogsSpecsError> read_logs_specs_ready(std::string_view line);

/// A further line for every attempt, with the variables of each worker by local rank.
std::string logs_specs_request(const std::vector<Variables>& environments);
/// Its answer. The sets of ranks, and that what the options need is there, are checked as torchrun
/// checks them.
boost::system::result<LogsDest, LogsSpecsError> read_logs_dest(std::string_view line,
                                                               const AgentOptions& options);

}  // namespace muster
