// --logs-specs NAME: the requests to torchrun's plug-in, and its answers.
//
// Pure: the lines of JSON between the agent and the program that runs the plug-in
// (agent/io/logs_specs_program.h). The program's side is launcher/logs_specs.py.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "agent/core/agent_options.h"
#include "agent/core/worker_env.h"

namespace muster {

/// The maximum length of an answer. A program that writes more is not the expected one.
inline constexpr std::size_t kMaxLogsSpecsBytes = 8 << 20;

/// torch's LogsDest, which the plug-in's reify() returns, by local rank; an empty path means the
/// console. Also the plug-in's changes of the workers' environments.
struct LogsDest {
  std::map<int, std::string> stdouts;  // One path for each local rank, as in stderrs.
  std::map<int, std::string> stderrs;
  std::map<int, std::string> tee_stdouts;
  std::map<int, std::string> tee_stderrs;
  std::map<int, std::string> error_files;
  std::string filtered_stdout;
  std::string filtered_stderr;
  std::vector<EnvironmentChanges> environment;  // One for each local rank.
};

/// What is wrong: a sentence for the user.
struct LogsSpecsError {
  std::string text;
};

/// The first line to the program: which plug-in it must load, and with which arguments.
std::string logs_specs_begin(const LogsSpecsOptions& specs, const LogOptions& log);
/// Reads the answer to it: success, or the reason why the plug-in cannot be used.
boost::system::result<void, LogsSpecsError> read_logs_specs_ready(std::string_view line);

/// The line that is sent for every attempt, with the variables of each worker by local rank.
std::string logs_specs_request(const std::vector<Variables>& environments);
/// Reads the answer to it. The sets of ranks, and the paths that the options need, are checked as
/// torchrun checks them.
boost::system::result<LogsDest, LogsSpecsError> read_logs_dest(std::string_view line,
                                                               const AgentOptions& options);

}  // namespace muster
