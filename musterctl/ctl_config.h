// musterctl's configuration file, which names the musterd to use if the command line names none.
#pragma once

#include <optional>
#include <string>

#include <boost/system/result.hpp>

#include "musterctl/http_text.h"

namespace muster::ctl {

/// The musterd that the file describes. An empty text: the file does not have the key. File names
/// are absolute here; in the file, they may be relative to its folder.
struct CtlConfig {
  std::string endpoint;
  std::string token_file;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
};

/// The first of these files that exists: $XDG_CONFIG_HOME/muster/musterctl.json (~/.config if the
/// variable is not set), /etc/muster/musterctl.json. Empty: none exists.
std::string find_config_file();

/// An error names the file and each key that is wrong.
boost::system::result<CtlConfig, ClientError> read_ctl_config(const std::string& path);

}  // namespace muster::ctl
