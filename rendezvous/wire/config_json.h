// musterd's configuration file: a JSON object whose keys are the long names of the options.
//
// Pure: text in, the words of a command line out. Which options there are, and whether a value is
// allowed, the caller knows: there is one table of options, the one of the command line.
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

/// What a key of the file may have.
enum class ConfigKind {
  Flag,    // true or false.
  Number,  // A number.
  Text,    // A text; a whole number stands for its digits.
  Texts,   // A text, or a list of texts.
};

struct ConfigKey {
  std::string name;  // Without the hyphens in front.
  ConfigKind kind = ConfigKind::Text;
};

/// A key and its values as the command line would have them. A flag has no value if it is true,
/// and is left out if it is false.
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;
};

struct ConfigFile {
  std::vector<ConfigEntry> entries;
  /// Each a sentence that names the key, the value and what is allowed. Empty: the file is right,
  /// as far as can be said without knowing each option's values.
  std::vector<std::string> errors;
};

ConfigFile decode_config(std::string_view text, std::span<const ConfigKey> keys);

/// The name that is most like `word`; empty if none is like it.
std::string_view nearest_name(std::string_view word, std::span<const ConfigKey> keys);

}  // namespace muster
