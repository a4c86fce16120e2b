// musterd's configuration file: a JSON object whose keys are the long names of the options.
//
// Pure: the input is the text, the output is the words of a command line. The caller brings the
// names of the options and checks the values: there is only one table of options, that of the
// command line.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// A longer file is refused.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 10;
/// Values in one list.
inline constexpr std::size_t kMaxConfigValues = 256;

/// The allowed values of a key.
enum class ConfigKind {
  Flag,    // true or false.
  Number,  // A number.
  Size,    // A number of bytes, or a text such as "2G".
  Text,    // A text; a whole number counts as the text of its digits.
  Texts,   // A text, or a list of texts.
};

struct ConfigKey {
  std::string name;  // Without the hyphens in front.
  ConfigKind kind = ConfigKind::Text;
};

/// A key and its values as on the command line. A flag that is true has no value; a flag that is
/// false has no entry.
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;
};

struct ConfigFile {
  std::vector<ConfigEntry> entries;
  /// Each is a sentence that names the key, the value and the allowed values. Empty: the file is
  /// right, except that the values of each option have not been checked.
  std::vector<std::string> errors;
};

ConfigFile decode_config(std::string_view text, std::span<const ConfigKey> keys);

}  // namespace muster
