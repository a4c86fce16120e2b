// A new folder for the files of one test.

#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace muster::testing {

/// Throws if there can be none; removed at the end with what is in it.
struct TempFolder {
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "muster_test_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + name);
    dir = name;
  }
  ~TempFolder() {
    std::error_code left;
    std::filesystem::remove_all(dir, left);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::filesystem::path dir;
};

}  // namespace muster::testing
