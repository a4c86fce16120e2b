// Where temporary files go: the order of Python's tempfile, which torchrun uses. Python also tries
// the working directory, after these: see agent/io/temporary_folder.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace muster {

/// The folders that may hold temporary files, the preferred one first; never empty. `variable`
/// takes the name of an environment variable and returns its value, or "" if it is not set.
template <class Variable>
std::vector<std::string> temporary_places(const Variable& variable) {
  std::vector<std::string> places;
  for (const char* name : {"TMPDIR", "TEMP", "TMP"})
    if (std::string place(variable(name)); !place.empty()) places.push_back(std::move(place));
  places.emplace_back("/tmp");
  places.emplace_back("/var/tmp");
  places.emplace_back("/usr/tmp");
  return places;
}

}  // namespace muster
