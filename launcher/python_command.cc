#include "launcher/python_command.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/python_text.h"

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

constexpr const char* kZygoteProgram =
#include "launcher/zygote_program.inc"
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

/// Adds the places of `name` in the folders of PATH. Without that variable: where the agent looks
/// for programs then (path_variable()).
void add_search_path(const Environment& environment, std::string_view name, Paths& paths) {
  const bool has_path = environment.contains("PATH");
  for (const std::string_view folder :
       split(has_path ? variable(environment, "PATH") : "/bin:/usr/bin", ':'))
    paths.push_back(in_folder(folder, name));
}

std::string_view folder_of(std::string_view path) {
  return path.substr(0, path.rfind('/') + 1);
}

/// Where the program is that argv0 names; empty: nowhere.
std::string find_called(const Environment& environment, std::string_view argv0,
                        const FirstOfPaths& first_executable) {
  if (argv0.empty() || argv0.find('/') != std::string_view::npos) return std::string(argv0);
  Paths paths;
  add_search_path(environment, argv0, paths);
  return first_executable(paths);
}

/// Adds the Pythons in a folder, which ends with a slash.
void add_pythons(std::string_view folder, Paths& paths) {
  for (const std::string_view python : kNames)
    paths.push_back(std::string(folder).append(python));
}

/// Whether pipx or `uv tool` made the environment for a program alone: it is hidden from the user,
/// whose scripts have their packages elsewhere. `pipx run` calls the program by its path.
bool is_of_a_tool(std::string_view folder, const FirstOfPaths& first_existing) {
  const std::string root = std::string(folder) + "../";
  return !first_existing({root + "pipx_metadata.json", root + "uv-receipt.toml"}).empty();
}

/// Whether the folder, which ends with a slash, is that of the programs of a virtual environment or
/// a conda environment for the user's scripts.
bool is_in_environment(std::string_view folder, const FirstOfPaths& first_existing) {
  const std::string root = std::string(folder) + "../";
  return !first_existing({root + "pyvenv.cfg", root + "conda-meta"}).empty() &&
         !is_of_a_tool(folder, first_existing);
}

/// An environment that the user may mean.
struct Named {
  std::string what;    // "VIRTUAL_ENV=/venv"
  std::string folder;  // Of its programs; ends with a slash.
  std::size_t place;   // In PATH; kNowhere: PATH does not have it.
  bool has_program;    // The program that was called is in it.
};
constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
constexpr std::size_t kCalledByPath = 0;  // Before all of PATH.

/// Where PATH has the folder, from 1.
std::size_t place_in_path(const Environment& environment, std::string_view folder) {
  std::size_t place = 0;
  for (const std::string_view entry : split(variable(environment, "PATH"), ':'))
    if (++place; in_folder(entry, "") == folder) return place;
  return kNowhere;
}

/// The environments that the user may mean, the likeliest first. What comes first in PATH is what
/// the user's own `python` is: a variable may be left from another environment, which was active
/// before (sbatch hands on the variables of a login shell, `module load` changes only PATH).
std::vector<Named> named_environments(const Environment& environment, std::string_view argv0,
                                      const std::string& called,
                                      const FirstOfPaths& first_existing) {
  std::vector<Named> all;
  const std::string called_in(folder_of(called));
  if (!called_in.empty() && is_in_environment(called_in, first_existing)) {
    const bool is_path = argv0.find('/') != std::string_view::npos;
    all.push_back({"the environment of " + called, called_in,
                   is_path ? kCalledByPath : place_in_path(environment, called_in), true});
  }
  for (const std::string_view name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto root = variable(environment, name);
    if (root.empty()) continue;
    const std::string folder = in_folder(in_folder(root, "bin"), "");
    all.push_back({std::string(name).append("=").append(root), folder,
                   place_in_path(environment, folder), false});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Named& a, const Named& b) { return a.place < b.place; });
  return all;
}

/// Says that an environment has no Python that can be run; empty: it never was to have one.
std::string missing_python(const Named& named, const FirstOfPaths& first_existing) {
  Paths paths;
  add_pythons(named.folder, paths);
  const std::string there = first_existing(paths);
  if (!there.empty())
    return named.what + " has no Python that can be run: " + there +
           " leads to none (its Python was removed, or belongs to another user)";
  if (named.what.starts_with("CONDA_PREFIX")) return {};  // Conda has environments without Python.
  return named.what + " has no Python";
}

/// What a shell runs.
struct ShellPython {
  std::string path;  // Of python3, or of python if there is no python3; empty: of neither.
  std::size_t place = kNowhere;
  std::string other;  // Of python, if its place is before that of python3.
};

ShellPython find_shell_python(const Environment& environment,
                              const FirstOfPaths& first_executable) {
  ShellPython found;
  for (const std::string_view name : kNames) {
    Paths paths;
    add_search_path(environment, name, paths);
    const std::string path = first_executable(paths);
    if (path.empty()) continue;
    const std::size_t place = place_in_path(environment, folder_of(path));
    if (found.path.empty()) {
      found.path = path;
      found.place = place;
    } else if (place < found.place) {
      found.other = path;
    }
  }
  return found;
}

/// Whether the user's own `python` is meant, and not the environment. One that PATH has later is
/// not active. One that PATH does not have may be meant: a Python that is in no environment is
/// there on every system.
bool is_before(const ShellPython& shell, const Named& named, const FirstOfPaths& first_existing) {
  if (shell.path.empty() || shell.place >= named.place) return false;
  if (is_in_environment(folder_of(shell.path), first_existing)) return true;
  return !named.has_program && named.place != kNowhere;
}

/// Why the Python of the environment is not the user's own `python`; empty: it is, or it was chosen
/// by a path.
std::string other_than_shell(const Named& named, const std::string& python,
                             const ShellPython& shell, const Environment& environment) {
  if (named.place == kCalledByPath || shell.path.empty()) return {};
  if (python == shell.path || python == shell.other) return {};
  // pyenv-virtualenv leaves PATH as it is: its own python3 there starts that of VIRTUAL_ENV.
  if (const auto root = variable(environment, "PYENV_VIRTUAL_ENV");
      !root.empty() && root == variable(environment, "VIRTUAL_ENV") &&
      named.folder == in_folder(in_folder(root, "bin"), ""))
    return {};
  return named.what + " is " + (named.place == kNowhere ? "not" : "later") +
         " in PATH, whose python3 is another one, " + shell.path + " (set PYTHON_EXEC to choose)";
}

}  // namespace

Checked<FoundPython> find_python(const Environment& environment, std::string_view argv0,
                                 const FirstOfPaths& first_executable,
                                 const FirstOfPaths& first_existing) {
  FoundPython found;
  const auto is_found = [&](const Paths& paths) {
    found.path = first_executable(paths);
    return !found.path.empty();
  };
  const auto result = [&](const std::string& doubt) {
    if (found.warning.empty()) found.warning = doubt;
    if (!found.warning.empty()) found.warning += ": " + found.path + " runs the script";
    return found;
  };
  found.path = variable(environment, "PYTHON_EXEC");
  if (!found.path.empty()) return found;
  const ShellPython shell = find_shell_python(environment, first_executable);
  const std::string called = find_called(environment, argv0, first_executable);
  bool is_shell = false;
  for (const Named& named : named_environments(environment, argv0, called, first_existing)) {
    is_shell = is_before(shell, named, first_existing);
    if (is_shell) break;
    Paths paths;
    add_pythons(named.folder, paths);
    if (is_found(paths)) return result(other_than_shell(named, found.path, shell, environment));
    if (found.warning.empty()) found.warning = missing_python(named, first_existing);
  }
  const std::string_view called_in = folder_of(called);
  if (!is_shell && argv0.substr(argv0.rfind('/') + 1) == "torchrun" && !called.empty() &&
      !is_of_a_tool(called_in, first_existing)) {
    Paths paths;
    add_pythons(called_in, paths);
    if (is_found(paths))
      return result(other_than_shell(
          {called, std::string(called_in),
           argv0 == called ? kCalledByPath : place_in_path(environment, called_in), true},
          found.path, shell, environment));
  }
  found.path = shell.path;
  if (!found.path.empty())
    return result(shell.other.empty() ? "" : "`python` in PATH is another one, " + shell.other);
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
  if (flags.warm && (flags.run_path || !flags.no_python))
    agent.warm = WarmOptions{.program = kZygoteProgram, .modules = flags.warm_modules.value_or("")};
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
