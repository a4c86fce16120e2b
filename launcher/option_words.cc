#include "launcher/option_words.h"

namespace muster {
namespace {

/// argparse's own: -1, -.5, -1.5 are arguments and not options.
bool looks_like_negative_number(std::string_view word) {
  constexpr std::string_view kDigits = "0123456789";
  if (word.ends_with('\n')) word.remove_suffix(1);  // Python's $ also matches before it.
  word.remove_prefix(1);
  const auto point = word.find_first_not_of(kDigits);
  if (point == std::string_view::npos) return !word.empty();
  return word[point] == '.' && point + 1 < word.size() &&
         word.find_first_not_of(kDigits, point + 1) == std::string_view::npos;
}

}  // namespace

const Option* find_option(std::string_view name, bool launch_module) {
  for (const Option& candidate : all_options())
    if (is_known(candidate, launch_module) && !name.empty() &&
        (name == candidate.names[0] || name == candidate.names[1]))
      return &candidate;
  return nullptr;
}

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
  if (!is_long) {  // A letter, and its value or more letters behind it.
    prefix = word.substr(0, 2);
    result.attached = word.substr(2);
  }
  // muster's own options do not take part: a new one must not make an old abbreviation ambiguous.
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

}  // namespace muster
