#include "launcher/run_path.h"

#include <utility>

#include "rendezvous/core/check.h"

namespace muster {
namespace {

// Through -c, not a file: muster is one file that may be copied anywhere.
constexpr const char* kRunPathProgram =
#include "launcher/run_path_program.inc"
    ;

}  // namespace

void plan_run_path(const Flags& flags, std::string python, AgentOptions& agent) {
  agent.command = {std::move(python), "-u", "-c", kRunPathProgram, flags.script};
  MUSTER_CHECK(agent.command.size() == kRunPathScriptAt + 1);
  agent.first_argument = kRunPathScriptAt;
  if (flags.launch_module && !flags.use_env) agent.local_rank_argument_at = agent.command.size();
  agent.command.insert(agent.command.end(), flags.script_arguments.begin(),
                       flags.script_arguments.end());
  agent.runs_path = true;
  agent.entry_point = "run_script_path";  // torchrun's name for it in summaries and events.
}

}  // namespace muster
