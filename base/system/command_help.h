// What the command lines of musterd and musterctl share with muster's: the form of --help (at most
// 79 columns, the option at the left, its explanation and default at the right), and values of a
// fixed set. Needs CLI11.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/nearest_name.h"
#include "base/parsed_size.h"
#include "base/printable_text.h"
#include "base/take_line.h"
#include "base/wrapped_text.h"

namespace muster {

/// Allows these values only.
inline CLI::Validator one_of(std::vector<std::string> values) {
  std::string shown;
  for (const std::string& value : values)
    shown += (shown.empty() ? "" : ",") + value;
  return {[values = std::move(values)](std::string& text) {
            std::string list;
            for (const std::string& value : values) {
              if (value == text) return std::string();
              list += (list.empty() ? "" : &value == &values.back() ? " or " : ", ") + value;
            }
            return "'" + printable_text(text, 64) + "' is no choice" +
                   did_you_mean(text, std::vector<std::string_view>(values.begin(), values.end())) +
                   ": give " + list;
          },
          "{" + shown + "}"};
}

class CommandHelp : public CLI::Formatter {
 public:
  static constexpr std::size_t kColumns = 79;
  static constexpr std::size_t kIndent = 30;

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string text = option->get_description();
    const std::string type = value_of(option->get_type_name());
    if (option->get_type_size() != 0 && !option->get_default_str().empty()) {
      std::string value = option->get_default_str();
      if (const auto bytes = type == "SIZE" ? parse_size(value) : std::nullopt)
        value = short_size(*bytes);
      // As muster shows the variable and the default: "[NAME, default VALUE]".
      if (text.ends_with(']'))
        text.replace(text.size() - 1, 1, ", default " + value + "]");
      else
        text += " [default " + value + "]";
    }
    std::string head = make_option_name(option, is_positional);
    if (const auto comma = head.find(','); comma != std::string::npos) head.insert(comma + 1, " ");
    if (!is_positional && option->get_type_size() != 0) head += " " + type;
    return beside(head, text);
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = "usage: " + (name.empty() ? app->get_name() : name) + " [options]";
    if (!app->get_subcommands({}).empty()) text += " COMMAND";
    for (const CLI::Option* each : app->get_options())
      if (each->get_positional())
        text +=
            each->get_required() ? " " + each->get_name(true) : " [" + each->get_name(true) + "]";
    return text + "\n\n";
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = make_usage(app, std::move(name)) + make_description(app) +
                       make_positionals(app) + make_groups(app, mode) + make_subcommands(app, mode);
    text.erase(std::min(text.find_last_not_of('\n'), text.size() - 1) + 1);
    return text + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return beside(command->get_name(), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    // Lines that begin with a blank are examples.
    std::string text;
    const std::string description = app->get_description();
    std::string_view rest = description;
    while (!rest.empty()) {
      const std::string_view line = take_line(rest);
      text += line.starts_with(' ') ? std::string(line) + "\n" : wrapped_text(line, 0, kColumns);
    }
    return text;
  }

 private:
  /// Without what CLI11's checks add: "PORT:INT in [0 - 65535]" is PORT, and "SHELL:{bash,zsh}" is
  /// {bash|zsh}. "HOST:PORT" stays.
  static std::string value_of(const std::string& type) {
    const auto colon = type.find(':');
    const std::string_view check =
        colon == std::string::npos ? std::string_view() : std::string_view(type).substr(colon + 1);
    if (check.substr(0, 1) == "{") {
      std::string choices(check);
      std::replace(choices.begin(), choices.end(), ',', '|');
      return choices;
    }
    const bool is_range = check.find(" in [") != std::string_view::npos;
    return is_range ? type.substr(0, colon) : type;
  }
  static std::string beside(const std::string& name, const std::string& text) {
    const std::string head = "  " + name;
    std::string body = wrapped_text(text, kIndent, kColumns);
    if (head.size() + 2 > kIndent) return head + "\n" + body;
    return body.replace(0, head.size(), head);
  }
};

}  // namespace muster
