#include "musterctl/ctl_config.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "base/config_json.h"
#include "base/system/config_file.h"

namespace muster::ctl {
namespace {

namespace fs = std::filesystem;

// The keys are the long names of the options, as in musterd's file.
const std::array<ConfigKey, 5> kKeys = {{{"endpoint", ConfigKind::Text},
                                         {"rdzv-token-file", ConfigKind::Text},
                                         {"tls-ca", ConfigKind::Text},
                                         {"tls-cert", ConfigKind::Text},
                                         {"tls-key", ConfigKind::Text}}};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ClientError failure(const std::string& path, const std::string& why) {
  return {"the configuration file " + path + ": " + why};
}

}  // namespace

std::string find_config_file() {
  std::vector<std::string> folders;
  if (const std::string config = variable("XDG_CONFIG_HOME"); !config.empty())
    folders.push_back(config);
  else if (const std::string home = variable("HOME"); !home.empty())
    folders.push_back(home + "/.config");
  folders.emplace_back("/etc");
  for (const std::string& folder : folders) {
    const std::string path = folder + "/muster/musterctl.json";
    std::error_code ec;
    // Only a regular file: reading a pipe might never end.
    if (fs::is_regular_file(path, ec)) return path;
  }
  return {};
}

boost::system::result<CtlConfig, ClientError> read_ctl_config(const std::string& path) {
  const auto text = read_config_file(path);
  if (!text) return failure(path, text.error().reason);
  const ConfigFile decoded = decode_config(*text, kKeys);
  std::string errors;
  for (const std::string& error : decoded.errors)
    errors += (errors.empty() ? "" : "; ") + error;
  if (!errors.empty()) return failure(path, errors);
  std::map<std::string, std::string> values;
  for (const ConfigEntry& entry : decoded.entries)
    if (!entry.values.empty()) values[entry.key] = entry.values.front();
  const auto file = [&](const char* key) {
    const std::string& name = values[key];
    return name.empty() ? name : (fs::absolute(path).parent_path() / name).string();
  };
  CtlConfig config{.endpoint = values["endpoint"],
                   .token_file = file("rdzv-token-file"),
                   .tls_ca = file("tls-ca"),
                   .tls_certificate = file("tls-cert"),
                   .tls_key = file("tls-key")};
  if (config.endpoint.empty()) return config;
  if (const auto parsed = parse_endpoint(config.endpoint); !parsed)
    return failure(path, "endpoint: " + parsed.error().reason);
  return config;
}

}  // namespace muster::ctl
