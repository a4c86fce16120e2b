#include "launcher/python_command.h"

#include <array>
#include <utility>
#include <vector>

#include "rendezvous/core/check.h"
#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

// python3 comes first, because pip writes python3 into torchrun's first line: sys.executable is
// then the same as under torchrun.
constexpr std::array<std::string_view, 2> kNames = {"python3", "python"};

// Python gets these programs through -c, not as files: muster is one file that may be copied
// anywhere.
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
  std::string path(folder.empty() ? "." : folder);  // An empty PATH entry: the current directory.
  if (path.back() != '/') path += '/';
  return path.append(name);
}

using Paths = std::vector<std::string>;

/// Adds the places of `name` in the folders of PATH.
void add_search_path(const Environment& environment, std::string_view name, Paths& paths) {
  if (!environment.contains("PATH")) return;
  for (const std::string_view folder : split(variable(environment, "PATH"), ':'))
    paths.push_back(in_folder(folder, name));
}

/// Where the torchrun is that argv0 names; empty: nowhere, or argv0 is no torchrun.
std::string find_torchrun(const Environment& environment, std::string_view argv0,
                          const FirstOfPaths& first_executable) {
  const auto slash = argv0.rfind('/');
  if (argv0.substr(slash == std::string_view::npos ? 0 : slash + 1) != "torchrun") return {};
  if (slash != std::string_view::npos) return std::string(argv0);
  Paths paths;
  add_search_path(environment, "torchrun", paths);
  return first_executable(paths);
}

/// Adds the Pythons in the folder of `program`, a path.
void add_neighbours(std::string_view program, Paths& paths) {
  for (const std::string_view python : kNames)
    paths.push_back(std::string(program.substr(0, program.rfind('/') + 1)).append(python));
}

/// Whether argv0 is the path of a program in a virtual environment or a conda environment. A user
/// who types such a path means the Python of that environment, even if another one is active. A
/// muster that was found in PATH does not show which Python the user means.
bool leads_into_environment(std::string_view argv0, const FirstOfPaths& first_existing) {
  const auto slash = argv0.rfind('/');
  if (slash == std::string_view::npos) return false;
  const std::string root = std::string(argv0.substr(0, slash + 1)) + "../";
  return !first_existing({root + "pyvenv.cfg", root + "conda-meta"}).empty();
}

/// Names the alternative explicitly: a FlagError can be made from a string, too.
Checked<std::string> found(std::string path) {
  return {boost::system::in_place_value, std::move(path)};
}

}  // namespace

Checked<std::string> find_python(const Environment& environment, std::string_view argv0,
                                 const FirstOfPaths& first_executable,
                                 const FirstOfPaths& first_existing) {
  if (const auto given = variable(environment, "PYTHON_EXEC"); !given.empty())
    return found(std::string(given));
  Paths paths;
  if (leads_into_environment(argv0, first_existing)) add_neighbours(argv0, paths);
  for (const std::string_view name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto root = variable(environment, name);
    if (root.empty()) continue;
    for (const std::string_view python : kNames)
      paths.push_back(in_folder(in_folder(root, "bin"), python));
  }
  const std::string torchrun = find_torchrun(environment, argv0, first_executable);
  if (!torchrun.empty()) add_neighbours(torchrun, paths);
  for (const std::string_view python : kNames)
    add_search_path(environment, python, paths);
  if (std::string path = first_executable(paths); !path.empty()) return found(std::move(path));
  return FlagError{
      "no Python was found to run the script: neither PYTHON_EXEC nor an active virtual "
      "environment names one, and PATH has no python3 and no python. Activate the environment, set "
      "PYTHON_EXEC to the interpreter, or add --no-python if the script is a program by itself"};
}

void plan_worker_command(const Flags& flags, const std::string& python, AgentOptions& agent) {
  agent.entry_point = flags.script;
  if (flags.run_path) {
    agent.command = {python, "-u", "-c", kRunPathProgram};
    MUSTER_CHECK(agent.command.size() == kRunPathScriptAt);
    agent.first_argument = kRunPathScriptAt;
    agent.runs_path = true;
    agent.entry_point = "run_script_path";  // torchrun's name for it in summaries and events.
  } else if (!flags.no_python) {
    agent.command = {python, "-u"};
    if (flags.module) agent.command.emplace_back("-m");
  }
  agent.command.push_back(flags.script);
  if (flags.launch_module && !flags.use_env) agent.local_rank_argument_at = agent.command.size();
  agent.command.insert(agent.command.end(), flags.script_arguments.begin(),
                       flags.script_arguments.end());
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
