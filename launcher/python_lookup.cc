#include "launcher/python_lookup.h"

#include <array>
#include <utility>

#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

// python3 first, as pip writes it into torchrun's first line: sys.executable is then the same.
constexpr std::array<std::string_view, 2> kNames = {"python3", "python"};

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

}  // namespace muster
