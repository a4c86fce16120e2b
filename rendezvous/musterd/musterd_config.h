// musterd's configuration file and its reload. The options of the command line are the only table:
// every option that CLI11 knows under a long name is a key of the file, and is in --help and in the
// completion scripts.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "base/config_json.h"

namespace muster {

/// The options that are not keys of the file.
struct ConfigOptions {
  std::string file;  // Empty: no configuration file.
  bool check = false;
  std::string completion;  // The shell of the completion script to print. Empty: none.
};
void add_config_options(CLI::App& app, ConfigOptions& options);

/// Adds all options to an app. The variables of the options must live as long as this function
/// object.
using AddOptions = std::function<void(CLI::App&)>;

struct ConfiguredWords {
  std::vector<std::string> words;
  /// Each error names the file, the key, the value and the allowed values. Empty: no errors.
  std::vector<std::string> errors;
};
/// The words of a command line that contains the settings of `file` and then `words`. If both set
/// the same option, `words` win. `app` must have parsed `words`.
ConfiguredWords with_config(const CLI::App& app, const std::string& file,
                            const std::vector<std::string>& words, const AddOptions& add_options);

/// Calls app.parse() with the words in their usual order.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

/// The values of all options that may be in a file, by long name.
using OptionValues = std::map<std::string, std::string, std::less<>>;
OptionValues option_values(const CLI::App& app);

/// A script that completes musterd's options, for "bash", "zsh", "fish" or "tcsh".
std::string completion_script(const CLI::App& app, std::string_view shell);

/// The result of reading the configuration again.
struct ConfigReading {
  OptionValues values;
  std::vector<std::string> errors;
  /// Applies the options that can be changed.
  std::function<void()> apply;
};

/// Holds SIGHUP back, also for a program that this process starts in its place, until a
/// ConfigReload waits for it. Before that, SIGHUP would end the process.
void hold_back_reloads();

/// At SIGHUP, reads the file again and applies the options that can be changed. Logs the changed
/// options, and those that need a restart. A file with an error changes nothing.
class ConfigReload {
 public:
  /// `changeable`: the long names of the options that `apply` sets. They have static lifetime.
  ConfigReload(boost::asio::io_context& loop, OptionValues values,
               std::span<const std::string_view> changeable, std::function<ConfigReading()> read);

  /// Stops waiting for SIGHUP.
  void stop() {
    stopped_ = true;  // A SIGHUP that came with the signal to end may still be handled.
    signals_.cancel();
  }

 private:
  void wait();
  void reload();

  boost::asio::signal_set signals_;
  OptionValues values_;  // The values in use.
  std::span<const std::string_view> changeable_;
  std::function<ConfigReading()> read_;
  bool stopped_ = false;
};

}  // namespace muster
