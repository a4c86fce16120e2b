// The text of a configuration file, of musterd's and of musterctl's. No Asio.
#pragma once

#include <string>

#include <boost/system/result.hpp>

namespace muster {

struct ConfigFileError {
  std::string reason;  // Without the file's name.
};

/// At most kMaxConfigBytes and one byte more, which decode_config() refuses. Only regular files: a
/// pipe might never end.
boost::system::result<std::string, ConfigFileError> read_config_file(const std::string& path);

}  // namespace muster
