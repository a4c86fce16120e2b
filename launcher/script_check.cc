#include "launcher/script_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "agent/core/worker_command.h"
#include "base/python_text.h"
#include "launcher/python_command.h"

namespace muster {
namespace {

constexpr std::size_t kScriptAt = 2;  // python -u SCRIPT

std::string text_of(int number) {
  return std::generic_category().message(number);
}

/// Whether Python can run the folder: it accepts __main__.py, its compiled form, and any other file
/// that an import of __main__ finds.
bool has_main(const std::string& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().stem() == "__main__") return true;
  return false;
}

/// False if `python` may run elsewhere: PYTHON_EXEC may name a program that starts Python in a
/// container or on another host, where the script may exist although it is not visible here.
bool runs_here(const std::string& python) {
  const std::string name = python.substr(python.rfind('/') + 1);
  return name.starts_with("python") || name.starts_with("pypy");
}

/// Whether a seccomp profile has answered in place of the kernel: faccessat2 is new enough to be
/// unknown to profiles, and no file makes it fail like this.
bool is_call_refused(int error) {
  return error == EPERM || error == ENOSYS;
}

/// Asks by opening it. To open and close a pipe would disturb its writer.
bool opens(const std::string& path, const struct stat& status) {
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return true;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

/// A hint to what the user may have meant; empty: none.
std::string hint_for(const std::string& script) {
  // Word processors and web pages put such dashes in place of two hyphens.
  for (const std::string_view dash : {"\u2014", "\u2013", "\u2012", "\u2212", "\u2010", "\u2011"})
    if (script.starts_with(dash)) {
      std::string_view name = script;
      while (name.starts_with(dash) || name.starts_with('-'))
        name.remove_prefix(name.starts_with('-') ? 1 : dash.size());
      return "; it begins with a typographic dash: was --" + std::string(name) + " meant?";
    }
  if (script.ends_with(".py") || script.find('/') != std::string::npos) return {};
  return "; for a module give -m, for a program that is not Python --no-python";
}

}  // namespace

std::optional<std::string> script_problem(const std::string& script) {
  struct stat status {};
  if (::stat(script.c_str(), &status) != 0) return text_of(errno);
  if (::faccessat(AT_FDCWD, script.c_str(), R_OK, AT_EACCESS) != 0 &&
      (!is_call_refused(errno) || !opens(script, status)))
    return text_of(errno);
  if (!S_ISDIR(status.st_mode)) return std::nullopt;  // A file, or a zip archive, or a pipe.
  std::error_code error;
  if (has_main(script, error)) return std::nullopt;
  if (error) return error.message();
  return "it is a directory without __main__.py";
}

Checked<void> check_script(const Flags& flags, const NodeFacts& facts, const AgentOptions& agent) {
  const bool is_file = flags.run_path || (!flags.module && !flags.no_python);
  if (!is_file || !facts.script_problem || flags.script.starts_with('-')) return {};
  if (!runs_here(agent.command.front())) return {};
  const bool differs = flags.script.find('$') != std::string::npos;
  const std::size_t at = flags.run_path ? kRunPathScriptAt : kScriptAt;
  for (int rank = 0; rank < (differs ? agent.local_world_size : 1); ++rank) {
    const std::string script = worker_command(agent, LocalRank{rank}).at(at);
    if (const auto problem = facts.script_problem(script)) {
      std::string text = "cannot run the script " + python_repr(script);
      if (differs) text += " of local rank " + std::to_string(rank);
      return FlagError{text + ": " + *problem + hint_for(script)};
    }
  }
  return {};
}

}  // namespace muster
