#include "launcher/python_command.h"

#include <array>
#include <utility>

#include "rendezvous/core/check.h"
#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

// python3 first, as pip writes it into torchrun's first line: sys.executable is then the same.
constexpr std::array<std::string_view, 2> kNames = {"python3", "python"};

// Through -c, not a file: muster is one file that may be copied anywhere.
constexpr const char* kRunPathProgram =
#include "launcher/run_path_program.inc"
    ;

constexpr const char* kLogsSpecsProgram =
#include "launcher/logs_specs_program.inc"
    ;

std::string_view variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view{} : std::string_view(found->second);
}

std::string in_folder(std::string_view folder, std::string_view name) {
  std::string path(folder.empty() ? "." : folder);  // An empty entry of PATH is this directory.
  if (path.back() != '/') path += '/';
  return path.append(name);
}

std::string search_path(const Environment& environment, std::string_view name,
                        const IsExecutable& is_executable) {
  if (!environment.contains("PATH")) return {};
  for (const std::string_view folder : split(variable(environment, "PATH"), ':'))
    if (std::string path = in_folder(folder, name); is_executable(path)) return path;
  return {};
}

/// Said out loud: an error can be made of a string as well.
Checked<std::string> found(std::string path) {
  return {boost::system::in_place_value, std::move(path)};
}

}  // namespace

Checked<std::string> find_python(const Environment& environment, std::string_view argv0,
                                 const IsExecutable& is_executable) {
  if (const auto given = variable(environment, "PYTHON_EXEC"); !given.empty())
    return found(std::string(given));
  for (const std::string_view name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto root = variable(environment, name);
    if (root.empty()) continue;
    for (const std::string_view python : kNames)
      if (std::string path = in_folder(in_folder(root, "bin"), python); is_executable(path))
        return found(std::move(path));
  }
  const auto slash = argv0.rfind('/');
  if (argv0.substr(slash == std::string_view::npos ? 0 : slash + 1) == "torchrun") {
    const std::string torchrun = slash == std::string_view::npos
                                     ? search_path(environment, "torchrun", is_executable)
                                     : std::string(argv0);
    if (!torchrun.empty())
      for (const std::string_view python : kNames)
        if (std::string path = torchrun.substr(0, torchrun.rfind('/') + 1).append(python);
            is_executable(path))
          return found(std::move(path));
  }
  for (const std::string_view python : kNames)
    if (std::string path = search_path(environment, python, is_executable); !path.empty())
      return found(std::move(path));
  return FlagError{
      "no Python was found to run the script: neither PYTHON_EXEC nor an active virtual "
      "environment names one, and PATH has no python3 and no python. Activate the environment, set "
      "PYTHON_EXEC to the interpreter, or add --no-python if the script is a program by itself"};
}

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

bool has_logs_plugin(const Flags& flags) {
  return flags.logs_specs.has_value() && *flags.logs_specs != "default";
}

void plan_logs_specs(const Flags& flags, std::string python, LogOptions& log) {
  log.specs = LogsSpecsOptions{.name = flags.logs_specs.value_or(""),
                               .command = {std::move(python), "-u", "-c", kLogsSpecsProgram},
                               .log_dir = flags.log_dir};
}

}  // namespace muster
