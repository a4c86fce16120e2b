#include "agent/posix/find_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/system/error_code.hpp>

namespace muster {
namespace {

using boost::system::errc::errc_t;

// Success, or why `path` cannot be executed.
errc_t check(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return boost::system::errc::no_such_file_or_directory;
  const bool executable = S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
  return executable ? boost::system::errc::success : boost::system::errc::permission_denied;
}

}  // namespace

Result<std::string> find_program(const std::string& name, std::string_view path) {
  if (name.find('/') != std::string::npos) {
    const errc_t error = check(name);
    if (error == boost::system::errc::success) return name;
    return make_error_code(error);
  }
  errc_t worst = boost::system::errc::no_such_file_or_directory;
  if (name.empty()) return make_error_code(worst);
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    std::string candidate(path.substr(at, end - at));
    if (!candidate.empty()) candidate += "/";  // An empty entry is the working directory.
    candidate += name;
    const errc_t error = check(candidate);
    if (error == boost::system::errc::success) return candidate;
    if (error != boost::system::errc::no_such_file_or_directory) worst = error;
    at = end + 1;
  }
  return make_error_code(worst);
}

std::optional<std::string_view> environment_value(const std::vector<std::string>& environment,
                                                  std::string_view name) {
  for (const std::string_view variable : environment)
    if (variable.starts_with(name) && variable.substr(name.size()).starts_with('='))
      return variable.substr(name.size() + 1);
  return std::nullopt;
}

std::string_view path_variable(const std::vector<std::string>& environment) {
  return environment_value(environment, "PATH").value_or("/bin:/usr/bin");
}

}  // namespace muster
