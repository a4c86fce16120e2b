#include "launcher/argparse.h"

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "base/python_text.h"

namespace muster {
namespace {

/// The meaning of one word by itself, without its neighbours.
struct Word {
  enum class Kind : std::uint8_t { Positional, Known, Unknown, Ambiguous } kind = Kind::Positional;
  const Option* option = nullptr;
  std::string_view name;                     // The option's full name.
  std::optional<std::string_view> attached;  // The text after "=" or after a short option's letter.
  std::vector<std::string_view> candidates;
};

/// argparse's rule: -1, -.5 and -1.5 are arguments, not options.
bool looks_like_negative_number(std::string_view word) {
  constexpr std::string_view kDigits = "0123456789";
  if (word.ends_with('\n')) word.remove_suffix(1);  // Python's $ also matches before a final \n.
  word.remove_prefix(1);
  const auto point = word.find_first_not_of(kDigits);
  if (point == std::string_view::npos) return !word.empty();
  return word[point] == '.' && point + 1 < word.size() &&
         word.find_first_not_of(kDigits, point + 1) == std::string_view::npos;
}

/// The option with exactly this name; null if there is none.
const Option* find_option(std::string_view name, bool launch_module) {
  for (const Option& candidate : all_options())
    if (is_known(candidate, launch_module) && !name.empty() &&
        (name == candidate.names[0] || name == candidate.names[1]))
      return &candidate;
  return nullptr;
}

/// Classifies one word of the command line by itself, as argparse's _parse_optional does (CPython
/// 3.11).
Word classify_word(std::string_view word, bool launch_module) {
  if (word.empty() || word[0] != '-') return {};
  if (const Option* exact = find_option(word, launch_module))
    return {
        .kind = Word::Kind::Known, .option = exact, .name = word, .attached = {}, .candidates = {}};
  if (word.size() == 1) return {};
  Word result{
      .kind = Word::Kind::Unknown, .option = nullptr, .name = {}, .attached = {}, .candidates = {}};
  std::string_view prefix = word;
  if (const auto equals = word.find('='); equals != std::string_view::npos) {
    result.attached = word.substr(equals + 1);
    prefix = word.substr(0, equals);
    result.option = find_option(prefix, launch_module);
    if (result.option != nullptr) {
      result.kind = Word::Kind::Known;
      result.name = prefix;
      return result;
    }
  }
  const bool is_long = word[1] == '-';
  if (!is_long) {  // One letter, followed by its value or by more letters.
    prefix = word.substr(0, 2);
    result.attached = word.substr(2);
  }
  // muster's own options cannot be abbreviated: a new option must not make an existing abbreviation
  // ambiguous.
  for (const Option& candidate : all_options()) {
    if (!is_known(candidate, launch_module)) continue;
    if (candidate.origin == OptionOrigin::Muster) continue;
    for (const std::string_view name : candidate.names) {
      if (name.empty() || (is_long ? !name.starts_with(prefix) : name != prefix)) continue;
      result.candidates.push_back(name);
      result.option = &candidate;
      result.name = name;
    }
  }
  if (result.candidates.size() > 1) {
    result.kind = Word::Kind::Ambiguous;
  } else if (result.candidates.size() == 1) {
    result.kind = Word::Kind::Known;
  } else if (looks_like_negative_number(word) || word.find(' ') != std::string_view::npos) {
    result.kind = Word::Kind::Positional;
  }
  return result;
}

std::optional<bool> switch_from(std::string_view text) {
  if (const auto number = parse_python_int(text)) return *number != 0;
  const std::string word = lower(strip(text));
  for (const char* yes : {"true", "yes", "on", "t", "y"})
    if (word == yes) return true;
  for (const char* no : {"false", "no", "off", "f", "n"})
    if (word == no) return false;
  return std::nullopt;
}

// read(text, field) parses the text as the field's type and stores the value. It returns an error
// message, or an empty string on success.

template <typename T>
std::string store_parsed(std::string_view what, std::string_view text, const std::optional<T>& read,
                         T& field) {
  if (!read) return std::string(what) + ": " + python_repr(text);
  field = *read;
  return {};
}

std::string read(std::string_view text, std::string& field) {
  field = text;
  return {};
}

std::string read(std::string_view text, std::int64_t& field) {
  return store_parsed("invalid int value", text, parse_python_int(text), field);
}

std::string read(std::string_view text, double& field) {
  return store_parsed("invalid float value", text, parse_python_float(text), field);
}

std::string read(std::string_view text, bool& field) {
  std::string wrong = store_parsed("invalid value", text, switch_from(text), field);
  return wrong.empty() ? wrong : wrong + ": say 1 or 0";
}

std::string read(std::string_view text, std::vector<std::string>& field) {
  field.assign(1, {});
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      field.back() += text[i];
    } else if (text.substr(i + 1).starts_with(',')) {
      field.back() += ',';
      ++i;
    } else {
      field.emplace_back();
    }
  }
  return {};
}

template <typename T>
std::string read(std::string_view text, std::optional<T>& field) {
  return read(text, field.emplace());
}

class Parser {
 public:
  explicit Parser(const ParseRequest& request) : request_(request) {
    flags_.launch_module = request.launch_module;
  }

  ParseOutcome run();
  /// Returns the script's index. An ambiguous option before the script becomes the error.
  std::size_t find_script();

 private:
  struct ParsedOption {
    const Option* option;
    std::string_view name;
    std::optional<std::string_view> value;
  };

  Word classify(std::string_view word) const { return classify_word(word, request_.launch_module); }
  bool is_value(std::size_t index) const;
  std::size_t consume_option(std::size_t index, Word word);
  std::optional<std::vector<ParsedOption>> read_cluster(std::size_t index, Word word,
                                                        std::size_t& next);
  void apply(const ParsedOption& parsed);
  void check_choice(const ParsedOption& given, std::string_view from = {});
  void set_script(std::size_t position);
  std::string advice_on(std::string_view unknown) const;
  void fill_default(const Option& option);
  void set(const Option& option, std::string_view text, std::string_view from = {});
  Flags::Given& given(const Option& option) { return flags_.given[option_index(option.field)]; }
  void fail(const Option& option, std::string_view message, std::string_view from = {});
  bool ended() const { return error_ || exit_; }

  const ParseRequest& request_;
  Flags flags_;
  bool has_script_ = false;
  std::vector<std::string_view> extras_;
  std::optional<UsageError> error_;  // The first error: parsing stops there.
  std::optional<EarlyExit> exit_;
};

void Parser::fail(const Option& option, std::string_view message, std::string_view from) {
  if (ended()) return;
  std::string text = "argument " + option.display_name() + ": ";
  text.append(message);
  if (!from.empty()) text.append(" (from ").append(from).append(")");
  error_ = UsageError{std::move(text)};
}

/// Whether this word can be the value of an option.
bool Parser::is_value(std::size_t index) const {
  return index < request_.words.size() && request_.words[index] != "--" &&
         classify(request_.words[index]).kind == Word::Kind::Positional;
}

/// Returns the options in one word, the last one with its value, and sets `next` to the index of
/// the first word after them. If a value is missing or not allowed, sets the error and returns
/// nothing.
std::optional<std::vector<Parser::ParsedOption>> Parser::read_cluster(std::size_t index, Word word,
                                                                      std::size_t& next) {
  std::vector<ParsedOption> parsed;
  std::string letter;
  next = index + 1;
  for (;;) {
    if (word.option->takes_value()) {
      if (!word.attached && !word.option->bare.empty()) {
        word.attached = word.option->bare;
      } else if (!word.attached) {
        if (!is_value(next)) {
          fail(*word.option, "expected one argument");
          return std::nullopt;
        }
        word.attached = request_.words[next++];
      }
      parsed.push_back({word.option, word.name, word.attached});
      return parsed;
    }
    parsed.push_back({word.option, word.name, {}});
    if (!word.attached) return parsed;
    // "-mr3" means -m and -r 3. A switch followed by "=" or by an unknown letter is an error.
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

std::size_t Parser::consume_option(std::size_t index, Word word) {
  std::size_t next = index + 1;
  const auto parsed = read_cluster(index, std::move(word), next);
  if (!parsed) return next;
  for (const ParsedOption& one : *parsed)
    if (!ended()) apply(one);
  return next;
}

/// Parses the text as the option's value and stores it. Sets the error if the text is invalid.
void Parser::set(const Option& option, std::string_view text, std::string_view from) {
  const auto wrong = [&](auto field) -> std::string {
    if constexpr (std::is_same_v<decltype(field), Prints>)
      return {};
    else
      return read(text, flags_.*field);
  };
  if (const std::string message = std::visit(wrong, option.field); !message.empty())
    fail(option, message, from);
}

/// Whether the option accepts `text`: it has no choices, or `text` is one of them.
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

/// Sets the error if the option does not accept the value. `given.name` is the option or the
/// variable that has the value, and `from` is that variable.
void Parser::check_choice(const ParsedOption& given, std::string_view from) {
  const Option& option = *given.option;
  if (ended() || !given.value || is_choice(option, *given.value)) return;
  if (!option.planned.value.empty() && *given.value == option.planned.value)
    error_ = UsageError{std::string(given.name)
                            .append("=")
                            .append(*given.value)
                            .append(": ")
                            .append(option.planned.reason)};
  else
    fail(option, choice_message(option, *given.value), from);
}

void Parser::apply(const ParsedOption& parsed) {
  const Option& option = *parsed.option;
  set(option, parsed.value.value_or("1"));  // An option without a value is a switch.
  check_choice(parsed);
  if (ended()) return;
  if (const auto* what = std::get_if<Prints>(&option.field))
    exit_ = EarlyExit{*what, std::string(parsed.value.value_or(""))};
  given(option) = {Source::CommandLine, {}};
}

void Parser::fill_default(const Option& option) {
  const auto variable = request_.environment.find(option.environment);
  if (variable != request_.environment.end() && !variable->second.empty()) {
    set(option, variable->second, option.environment);
    // As under torchrun, the value of a torchrun variable need not be one of the choices.
    if (option.origin == OptionOrigin::Muster)
      check_choice({&option, option.environment, variable->second}, option.environment);
    given(option).source = Source::Variable;
  } else if (option.fallback && !option.fallback->empty()) {
    set(option, *option.fallback);
  }
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
    // Other errors are left to run(), the second pass: an ambiguous option anywhere before the
    // script is reported first.
    const auto error = error_;
    std::size_t next = i + 1;
    (void)read_cluster(i, std::move(word), next);
    error_ = error;
    i = next;
  }
  return i;
}

/// What to do about an option that nobody knows: a typing error, or an option of the script.
std::string Parser::advice_on(std::string_view unknown) const {
  const std::string_view word = unknown.substr(0, unknown.find('='));
  std::vector<std::string_view> names;
  for (const Option& known : all_options())
    if (is_known(known, request_.launch_module)) names.push_back(known.long_name());
  const std::string_view nearest = nearest_name(word, names);
  if (!nearest.empty()) return "did you mean " + std::string(nearest) + "?";
  // Its value is taken for the script, so the script is what looks like one.
  std::string script = "training_script";
  std::string value;
  const auto words = request_.words;
  const auto at = std::find(words.begin(), words.end(), unknown);
  for (auto next = at; next != words.end(); ++next)
    if (next->ends_with(".py")) {
      script = *next;
      if (next - at == 2 && !at[1].starts_with('-')) value = " " + at[1];
      break;
    }
  return "options of the script go behind it: muster " + script + " " + std::string(unknown) +
         value;
}

/// argparse removes one "--" directly before or directly after the script. Every other "--" is an
/// argument of the script.
void Parser::set_script(std::size_t position) {
  const auto words = request_.words;
  const bool dashes_first = position < words.size() && words[position] == "--";
  if (dashes_first) ++position;
  if (position >= words.size()) return;
  has_script_ = true;
  flags_.script = words[position++];
  if (!dashes_first && position < words.size() && words[position] == "--") ++position;
  flags_.script_arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(position),
                                 words.end());
}

ParseOutcome Parser::run() {
  const std::size_t script_at = find_script();
  for (std::size_t i = 0; i < script_at && !ended();) {
    Word word = classify(request_.words[i]);
    if (word.kind == Word::Kind::Unknown) {
      extras_.push_back(request_.words[i++]);
      continue;
    }
    const Option& option = *word.option;
    std::string spelled = request_.words[i].substr(0, request_.words[i].find('='));
    i = consume_option(i, std::move(word));
    given(option).spelled = std::move(spelled);
  }
  set_script(script_at);
  for (const Option& option : all_options())
    if (!ended() && !option.ends_muster() && given(option).source != Source::CommandLine)
      fill_default(option);
  if (!ended() && !has_script_)
    error_ =
        UsageError{"the following arguments are required: training_script, training_script_args",
                   "give the script behind the options; --help lists them"};
  if (!ended() && !extras_.empty()) {
    std::string message = "unrecognized arguments:";
    for (const std::string_view extra : extras_)
      message.append(" ").append(extra);
    error_ = UsageError{std::move(message), advice_on(extras_.front())};
  }
  if (error_) return *std::move(error_);
  if (exit_) return *std::move(exit_);
  return std::move(flags_);
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
