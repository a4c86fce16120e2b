#include "launcher/argparse.h"

#include <optional>
#include <utility>

#include "launcher/option_words.h"
#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

class Parser {
 public:
  explicit Parser(const ParseRequest& request) : request_(request) {}

  ParseOutcome run();
  /// The script's place; notes an ambiguous option before it as the error.
  std::size_t find_script();

 private:
  struct Taken {
    const Option* option;
    std::string_view name;
    std::optional<std::string_view> value;
  };

  Word classify(std::string_view word) const { return classify_word(word, request_.launch_module); }
  bool is_value(std::size_t index) const;
  std::size_t take_option(std::size_t index, Word word);
  std::optional<std::vector<Taken>> read_cluster(std::size_t index, Word word, std::size_t& next);
  void carry_out(const Taken& taken);
  void take_script(std::size_t position);
  void fill_default(const Option& option);
  std::optional<OptionValue> convert(const Option& option, std::string_view text,
                                     std::string_view from);
  std::optional<bool> switch_from(std::string_view text) const;
  void fail(const Option& option, std::string_view message, std::string_view from = {});
  bool ended() const { return error_ || exit_; }

  const ParseRequest& request_;
  CommandLine line_;
  std::array<bool, kOptionCount> seen_{};
  bool has_script_ = false;
  std::vector<std::string_view> extras_;
  std::optional<UsageError> error_;  // The first one: nothing happens after it.
  std::optional<EarlyExit> exit_;
};

void Parser::fail(const Option& option, std::string_view message, std::string_view from) {
  if (ended()) return;
  std::string text = "argument " + option.display_name() + ": ";
  text.append(message);
  if (!from.empty()) text.append(" (from ").append(from).append(")");
  error_ = UsageError{std::move(text)};
}

/// Whether an option may take this word as its value.
bool Parser::is_value(std::size_t index) const {
  return index < request_.words.size() && request_.words[index] != "--" &&
         classify(request_.words[index]).kind == Word::Kind::Positional;
}

/// The options in one word and the value of the last one; `next` is the word after that. Nothing
/// if a value is missing or too much, which is then the error.
std::optional<std::vector<Parser::Taken>> Parser::read_cluster(std::size_t index, Word word,
                                                               std::size_t& next) {
  std::vector<Taken> taken;
  std::string letter;
  next = index + 1;
  for (;;) {
    if (word.option->takes_value()) {
      if (!word.attached) {
        if (!is_value(next)) {
          fail(*word.option, "expected one argument");
          return std::nullopt;
        }
        word.attached = request_.words[next++];
      }
      taken.push_back({word.option, word.name, word.attached});
      return taken;
    }
    taken.push_back({word.option, word.name, {}});
    if (!word.attached) return taken;
    // "-mr3" is -m and -r 3. A switch with "=" behind it, or with a letter unknown, is an error.
    const Option* following = nullptr;
    if (!word.name.starts_with("--") && !word.attached->empty()) {
      letter = {'-', word.attached->front()};
      following = find_option(letter, request_.launch_module);
    }
    if (following == nullptr) {
      fail(*word.option, "ignored explicit argument " + python_repr(*word.attached));
      return std::nullopt;
    }
    word.option = following;
    word.name = following->short_name();
    word.attached->remove_prefix(1);
    if (word.attached->empty()) word.attached.reset();
  }
}

std::size_t Parser::take_option(std::size_t index, Word word) {
  std::size_t next = index + 1;
  const auto taken = read_cluster(index, std::move(word), next);
  if (!taken) return next;
  for (const Taken& one : *taken)
    if (!ended()) carry_out(one);
  return next;
}

std::optional<bool> Parser::switch_from(std::string_view text) const {
  if (const auto number = parse_python_int(text)) return *number != 0;
  const std::string word = lower(strip(text));
  for (const char* yes : {"true", "yes", "on", "t", "y"})
    if (word == yes) return true;
  for (const char* no : {"false", "no", "off", "f", "n"})
    if (word == no) return false;
  return std::nullopt;
}

/// The text as the option's kind. Nothing if it cannot be that, which is then the error.
std::optional<OptionValue> Parser::convert(const Option& option, std::string_view text,
                                           std::string_view from) {
  switch (option.kind) {
    case OptionKind::Integer:
      if (const auto number = parse_python_int(text)) return *number;
      fail(option, "invalid int value: " + python_repr(text), from);
      return std::nullopt;
    case OptionKind::Real:
      if (const auto number = parse_python_float(text)) return *number;
      fail(option, "invalid float value: " + python_repr(text), from);
      return std::nullopt;
    case OptionKind::Switch:
      if (const auto on = switch_from(text)) return *on;
      fail(option, "invalid value: " + python_repr(text) + ": say 1 or 0", from);
      return std::nullopt;
    case OptionKind::List: {
      std::vector<std::string> items(1);
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != ',') {
          items.back() += text[i];
        } else if (text.substr(i + 1).starts_with(',')) {
          items.back() += ',';
          ++i;
        } else {
          items.emplace_back();
        }
      }
      return items;
    }
    case OptionKind::Action:
    case OptionKind::ActionOfValue:
    case OptionKind::Text:
      return std::string(text);
  }
  return std::nullopt;
}

/// An error if the option has choices and `text` is none of them.
bool is_choice(const Option& option, std::string_view text) {
  if (option.choices.empty()) return true;
  for (const std::string_view choice : option.choices)
    if (choice == text) return true;
  return false;
}

std::string choice_message(const Option& option, std::string_view text) {
  std::string message = "invalid choice: " + python_repr(text) + " (choose from ";
  for (const std::string_view choice : option.choices) {
    if (choice != option.choices.front()) message += ", ";
    message += python_repr(choice);
  }
  return message + ")";
}

void Parser::carry_out(const Taken& taken) {
  const Option& option = *taken.option;
  const auto index = static_cast<std::size_t>(option.id);
  seen_[index] = true;
  OptionValue value = true;
  if (taken.value) {
    auto converted = convert(option, *taken.value, {});
    if (!converted) return;
    value = std::move(*converted);
    if (!is_choice(option, *taken.value)) return fail(option, choice_message(option, *taken.value));
  }
  if (option.ends_muster()) {
    exit_ = EarlyExit{option.id, std::string(taken.value.value_or(""))};
    return;
  }
  line_.settings[index] = {std::move(value), Source::Words, {}};
}

void Parser::fill_default(const Option& option) {
  Setting& setting = line_.at(option.id);
  setting = {};
  if (option.kind == OptionKind::Switch) setting.value = false;
  if (option.kind == OptionKind::List) setting.value = std::vector<std::string>{};
  if (!option.environment.empty()) {
    const auto variable = request_.environment.find(option.environment);
    if (variable != request_.environment.end() && !variable->second.empty()) {
      auto converted = convert(option, variable->second, option.environment);
      if (!converted) return;
      // As under torchrun, a variable's value need not be one of the choices.
      if (option.origin == OptionOrigin::Muster && !is_choice(option, variable->second))
        return fail(option, choice_message(option, variable->second), option.environment);
      setting = {std::move(*converted), Source::Variable, {}};
      return;
    }
  }
  if (option.kind == OptionKind::List || !option.fallback) return;
  if (auto converted = convert(option, *option.fallback, {})) setting.value = std::move(*converted);
}

std::size_t Parser::find_script() {
  const auto words = request_.words;
  std::size_t i = 0;
  while (i < words.size() && words[i] != "--") {
    Word word = classify(words[i]);
    if (word.kind == Word::Kind::Positional) return i;
    if (word.kind == Word::Kind::Ambiguous && !ended()) {
      std::string message = "ambiguous option: " + words[i] + " could match ";
      for (const std::string_view name : word.candidates) {
        if (name != word.candidates.front()) message += ", ";
        message += name;
      }
      error_ = UsageError{std::move(message)};
    }
    if (word.kind != Word::Kind::Known) {
      ++i;
      continue;
    }
    // Errors inside the word belong to the second pass: an ambiguous option comes before them.
    const auto error = error_;
    std::size_t next = i + 1;
    (void)read_cluster(i, std::move(word), next);
    error_ = error;
    i = next;
  }
  return i;
}

/// One "--" directly before or after the script is argparse's own; all others are arguments.
void Parser::take_script(std::size_t position) {
  const auto words = request_.words;
  const bool dashes_first = position < words.size() && words[position] == "--";
  if (dashes_first) ++position;
  if (position >= words.size()) return;
  has_script_ = true;
  line_.script = words[position++];
  if (!dashes_first && position < words.size() && words[position] == "--") ++position;
  line_.script_arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(position), words.end());
}

ParseOutcome Parser::run() {
  const std::size_t script_at = find_script();
  for (std::size_t i = 0; i < script_at && !ended();) {
    Word word = classify(request_.words[i]);
    if (word.kind == Word::Kind::Unknown) {
      extras_.push_back(request_.words[i++]);
      continue;
    }
    const OptionId id = word.option->id;
    std::string spelled = request_.words[i].substr(0, request_.words[i].find('='));
    i = take_option(i, std::move(word));
    line_.at(id).spelled = std::move(spelled);
  }
  take_script(script_at);
  for (const Option& option : all_options())
    if (!ended() && !option.ends_muster() && !seen_[static_cast<std::size_t>(option.id)])
      fill_default(option);
  if (!ended() && !has_script_)
    error_ =
        UsageError{"the following arguments are required: training_script, training_script_args"};
  if (!ended() && !extras_.empty()) {
    std::string message = "unrecognized arguments:";
    for (const std::string_view extra : extras_)
      message.append(" ").append(extra);
    error_ = UsageError{std::move(message)};
  }
  if (error_) return *std::move(error_);
  if (exit_) return *std::move(exit_);
  return std::move(line_);
}

}  // namespace

ParseOutcome parse_command_line(const ParseRequest& request) {
  return Parser(request).run();
}

std::size_t script_position(std::span<const std::string> words, bool launch_module) {
  const Environment nothing;
  return Parser({.words = words, .environment = nothing, .launch_module = launch_module})
      .find_script();
}

}  // namespace muster
