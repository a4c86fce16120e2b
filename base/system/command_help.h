// The form of --help that musterd and musterctl share with muster: at most 79 columns, the option
// at the left, its explanation and default at the right. Needs CLI11.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

namespace muster {

class CommandHelp : public CLI::Formatter {
 public:
  static constexpr std::size_t kColumns = 79;
  static constexpr std::size_t kIndent = 30;

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string text = option->get_description();
    if (option->get_type_size() != 0 && !option->get_default_str().empty())
      text += " [default " + option->get_default_str() + "]";
    std::string head = make_option_name(option, is_positional);
    if (!is_positional && option->get_type_size() != 0)
      head += " " + value_of(option->get_type_name());
    return beside(head, text);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return beside(command->get_name(), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0);
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
    std::string body = wrapped(text, kIndent);
    if (head.size() + 2 > kIndent) return head + "\n" + body;
    return body.replace(0, head.size(), head);
  }
  /// The text in lines of at most kColumns, each after `indent` blanks.
  static std::string wrapped(std::string_view text, std::size_t indent) {
    std::string out;
    std::string line;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.empty() && indent + line.size() + 1 + word.size() > kColumns) {
        out.append(indent, ' ').append(line).append("\n");
        line.clear();
      }
      line.append(line.empty() ? "" : " ").append(word);
    }
    return out.append(indent, ' ').append(line).append("\n");
  }
};

}  // namespace muster
