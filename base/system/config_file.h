// Reads the text of a configuration file, for musterd and musterctl. Does not use Asio.
#pragma once

#include <string>

#include <boost/system/result.hpp>

namespace muster {

struct ConfigFileError {
  std::string reason;  // Without the file's name.
};

/// Reads at most kMaxConfigBytes and one byte more, so that decode_config() can refuse a file that
/// is too long. Reads only regular files, because reading a pipe might never end.
boost::system::result<std::string, ConfigFileError> read_config_file(const std::string& path);

}  // namespace muster
