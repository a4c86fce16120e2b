#include "base/proc_cgroup.h"

#include "base/next_field.h"

namespace muster {
namespace {

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
