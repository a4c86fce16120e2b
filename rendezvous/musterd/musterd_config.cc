#include "rendezvous/musterd/musterd_config.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/printable_text.h"
#include "base/system/command_help.h"
#include "base/system/config_file.h"

namespace muster {
namespace {

/// Options that end the program before it serves, or name the file. They are not keys of the file.
constexpr std::array<std::string_view, 5> kNotInFile = {"help", "version", "config", "check-config",
                                                        "completion"};

std::string_view long_name(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return names.empty() ? std::string_view() : std::string_view(names.front());
}

bool may_be_in_file(std::string_view name) {
  return !name.empty() && std::find(kNotInFile.begin(), kNotInFile.end(), name) == kNotInFile.end();
}

ConfigKind kind_of(const CLI::Option& option) {
  const int most = option.get_items_expected_max();
  if (most == 0) return ConfigKind::Flag;
  if (most > 1) return ConfigKind::Texts;
  const std::string type = option.get_type_name();
  const std::string_view shown = std::string_view(type).substr(0, type.find(':'));
  if (shown == "SIZE") return ConfigKind::Size;
  const bool number = shown == "N" || shown == "SECONDS" || shown == "PORT";
  return number ? ConfigKind::Number : ConfigKind::Text;
}

std::vector<ConfigKey> config_keys(const CLI::App& app) {
  std::vector<ConfigKey> keys;
  for (const CLI::Option* option : app.get_options())
    if (const std::string_view name = long_name(*option); may_be_in_file(name))
      keys.push_back({std::string(name), kind_of(*option)});
  return keys;
}

std::vector<std::string> words_of(const ConfigEntry& entry) {
  if (entry.values.empty()) return {"--" + entry.key};
  std::vector<std::string> words;
  words.reserve(entry.values.size());
  for (const std::string& value : entry.values)
    words.push_back("--" + entry.key + "=" + value);
  return words;
}

/// The error that the command line would report for this entry. Empty: no error.
std::string check_entry(const ConfigEntry& entry, const AddOptions& add_options) {
  CLI::App app;
  add_options(app);
  try {
    parse_words(app, words_of(entry));
    return {};
  } catch (const CLI::ParseError& error) {
    std::string why = error.what();
    const std::string option = "--" + entry.key + ": ";
    if (why.starts_with(option)) why.erase(0, option.size());
    std::string values;
    for (const std::string& value : entry.values)
      values += (values.empty() ? "" : ", ") + printable_text(value, 128);
    return "key \"" + entry.key + "\": " + values + ": " + why;
  }
}

std::string quoted_text(const std::string& value) {
  return "\"" + printable_text(value) + "\"";
}

void change_mask(int how) {
  sigset_t hangup;
  ::sigemptyset(&hangup);
  ::sigaddset(&hangup, SIGHUP);
  ::pthread_sigmask(how, &hangup, nullptr);
}

}  // namespace

void add_config_options(CLI::App& app, ConfigOptions& options) {
  app.add_option("--config", options.file,
                 "Take options from this file, a JSON object whose keys are the long names of the "
                 "options; the command line wins. SIGHUP reads it again")
      ->type_name("FILE");
  app.add_flag("--check-config", options.check,
               "Say whether the options and the file are right, and end with 0 or 2");
  app.add_option("--completion", options.completion, "Print a completion script, and end")
      ->type_name("SHELL")
      ->check(one_of({"bash", "zsh", "fish", "tcsh"}));
}

void parse_words(CLI::App& app, const std::vector<std::string>& words) {
  // CLI11 parses the words from the last one to the first one.
  app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
}

ConfiguredWords with_config(const CLI::App& app, const std::string& file,
                            const std::vector<std::string>& words, const AddOptions& add_options) {
  ConfiguredWords result;
  const auto fail = [&](const std::string& why) {
    result.errors.push_back(printable_text(file) + ": " + why);
  };
  const auto text = read_config_file(file);
  if (!text) {
    fail(text.error().reason);
    return result;
  }
  const std::vector<ConfigKey> keys = config_keys(app);
  const ConfigFile decoded = decode_config(*text, keys);
  for (const std::string& error : decoded.errors)
    fail(error);
  for (const ConfigEntry& entry : decoded.entries) {
    if (const std::string wrong = check_entry(entry, add_options); !wrong.empty()) fail(wrong);
    if (app.count("--" + entry.key) > 0) continue;
    for (std::string& word : words_of(entry))
      result.words.push_back(std::move(word));
  }
  result.words.insert(result.words.end(), words.begin(), words.end());
  return result;
}

OptionValues option_values(const CLI::App& app) {
  OptionValues values;
  for (const CLI::Option* option : app.get_options()) {
    const std::string_view name = long_name(*option);
    if (!may_be_in_file(name)) continue;
    std::string text;
    for (const std::string& value : option->results())
      text += (text.empty() ? "" : ",") + value;
    values[std::string(name)] = option->count() > 0 ? text : option->get_default_str();
  }
  return values;
}

void hold_back_reloads() {
  change_mask(SIG_BLOCK);
}

ConfigReload::ConfigReload(boost::asio::io_context& loop, OptionValues values,
                           std::span<const std::string_view> changeable,
                           std::function<ConfigReading()> read)
    : signals_(loop, SIGHUP),
      values_(std::move(values)),
      changeable_(changeable),
      read_(std::move(read)) {
  wait();
  change_mask(SIG_UNBLOCK);
}

void ConfigReload::wait() {
  signals_.async_wait([this](const boost::system::error_code& ec, int) {
    if (ec || stopped_) return;
    wait();  // First, because an exception of reload() must not end the reloads.
    reload();
  });
}

void ConfigReload::reload() {
  const ConfigReading reading = read_();
  for (const std::string& error : reading.errors)
    spdlog::error("config_not_reloaded reason={} advice=\"nothing was changed\"",
                  quoted_text(error));
  if (!reading.errors.empty()) return;
  std::size_t changed = 0;
  std::size_t left = 0;
  for (const auto& [name, value] : reading.values) {
    std::string& now = values_[name];
    if (value == now) continue;
    if (std::find(changeable_.begin(), changeable_.end(), name) == changeable_.end()) {
      ++left;
      spdlog::warn("config_needs_restart key={} now={} wanted={}", name, quoted_text(now),
                   quoted_text(value));
      continue;
    }
    ++changed;
    spdlog::info("config_changed key={} from={} to={}", name, quoted_text(now), quoted_text(value));
    now = value;
  }
  // Called also if no option has changed: the files that options name may have new content.
  if (reading.apply) reading.apply();
  spdlog::info("config_reloaded changed={} needs_restart={}", changed, left);
}

}  // namespace muster
