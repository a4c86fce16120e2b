// A new folder for the files of one test.

#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace muster::testing {

/// The constructor throws if it cannot create the folder. The destructor removes the folder with
/// its content.
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
