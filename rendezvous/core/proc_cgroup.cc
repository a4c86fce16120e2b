#include "rendezvous/core/proc_cgroup.h"

namespace muster {
namespace {

// Returns the part of `text` before `separator`, and removes both from `text`.
std::string_view next_field(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return part;
}

bool names(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty())
    if (next_field(controllers, ',') == controller) return true;
  return false;
}

}  // namespace

std::optional<ControllerCgroup> controller_cgroup(std::string_view proc_cgroup,
                                                  std::string_view controller) {
  std::optional<ControllerCgroup> unified;
  while (!proc_cgroup.empty()) {
    std::string_view path = next_field(proc_cgroup, '\n');
    const std::string_view number = next_field(path, ':');
    const std::string_view controllers = next_field(path, ':');
    if (path.empty()) continue;
    if (names(controllers, controller)) return ControllerCgroup{std::string(path), false};
    if (number == "0" && controllers.empty()) unified = ControllerCgroup{std::string(path), true};
  }
  return unified;
}

}  // namespace muster
