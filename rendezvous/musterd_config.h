// musterd's configuration file and its reload. The options of the command line are the one table:
// what CLI11 knows under a long name is a key of the file, and is in --help and in completion.
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

#include "rendezvous/wire/config_json.h"

namespace muster {

/// Options that are about the file itself, and are no keys of it.
struct ConfigOptions {
  std::string file;  // Empty: none.
  bool check = false;
  std::string completion;  // The shell; empty: none is wanted.
};
void add_config_options(CLI::App& app, ConfigOptions& options);

/// Adds all options to an app; what they are bound to lives as long as this function object.
using AddOptions = std::function<void(CLI::App&)>;

struct ConfiguredWords {
  std::vector<std::string> words;
  /// Each names the file, the key, the value and what is allowed. Empty: all is right.
  std::vector<std::string> errors;
};
/// The words of a command line which says what `file` says, and what `words` say. The latter win.
/// `app` has parsed `words`.
ConfiguredWords with_config(const CLI::App& app, const std::string& file,
                            const std::vector<std::string>& words, const AddOptions& add_options);

/// As app.parse() with the words in their usual order.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

/// What each option that may be in a file is set to, by its long name.
using OptionValues = std::map<std::string, std::string, std::less<>>;
OptionValues option_values(const CLI::App& app);

/// A script that completes musterd's options, for "bash", "zsh" or "fish".
std::string completion_script(const CLI::App& app, std::string_view shell);

/// What a reload has found.
struct ConfigReading {
  OptionValues values;
  std::vector<std::string> errors;
  /// Sets what can be changed.
  std::function<void()> apply;
};

/// SIGHUP: reads the file again, and changes what can be changed. The log says what was changed,
/// and what would need a restart. A file with an error changes nothing.
class ConfigReload {
 public:
  /// `changeable`: the long names of the options that `apply` sets; they live for ever.
  ConfigReload(boost::asio::io_context& loop, OptionValues values,
               std::span<const std::string_view> changeable, std::function<ConfigReading()> read);

  /// No further signal is waited for.
  void stop() { signals_.cancel(); }

 private:
  void wait();
  void reload();

  boost::asio::signal_set signals_;
  OptionValues values_;  // As they are in use.
  std::span<const std::string_view> changeable_;
  std::function<ConfigReading()> read_;
};

}  // namespace muster
