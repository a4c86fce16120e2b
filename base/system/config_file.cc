#include "base/system/config_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/config_json.h"

namespace muster {

boost::system::result<std::string, ConfigFileError> read_config_file(const std::string& path) {
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (!ec && !std::filesystem::is_regular_file(status))
    return ConfigFileError{std::filesystem::exists(status) ? "is no regular file"
                                                           : "No such file or directory"};
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof())
    return ConfigFileError{errno != 0 ? std::strerror(errno) : "cannot be read"};
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return {boost::system::in_place_value, std::move(text)};
}

}  // namespace muster
