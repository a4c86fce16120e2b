// musterctl's configuration file: which musterd is asked where the command line names none.
#pragma once

#include <optional>
#include <string>

#include <boost/system/result.hpp>

#include "musterctl/http_text.h"

namespace muster::ctl {

/// One musterd, as the file describes it. An empty text: the file does not have the key. Names of
/// files are absolute: the file may give them relative to its own folder.
struct CtlConfig {
  std::string endpoint;
  std::string token_file;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
};

/// The first of these that exists: $XDG_CONFIG_HOME/muster/musterctl.json (without the variable
/// ~/.config), /etc/muster/musterctl.json. Empty: there is none.
std::string find_config_file();

/// An error names the file and each key that is wrong.
boost::system::result<CtlConfig, ClientError> read_ctl_config(const std::string& path);

}  // namespace muster::ctl
