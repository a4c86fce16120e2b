// For files of /proc and /sys that have one line.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace muster {

/// Empty if the file cannot be read.
inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace muster
