#include "agent/core/string_template.h"

#include <algorithm>

namespace muster {
namespace {

bool begins_name(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool continues_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

// The identifier at the beginning of `text`; empty if there is none.
std::string_view leading_name(std::string_view text) {
  if (text.empty() || !begins_name(text[0])) return {};
  const auto end = std::find_if_not(text.begin(), text.end(), continues_name);
  return text.substr(0, static_cast<std::size_t>(end - text.begin()));
}

void add_literal(std::vector<TemplatePiece>& pieces, std::string_view text) {
  if (text.empty()) return;
  if (pieces.empty() || !pieces.back().name.empty()) pieces.emplace_back();
  pieces.back().text.append(text);
}

}  // namespace

std::vector<TemplatePiece> parse_template(std::string_view text) {
  std::vector<TemplatePiece> pieces;
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    add_literal(pieces, text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) break;

    const std::string_view after = text.substr(1);
    const bool braced = !after.empty() && after[0] == '{';
    const std::string_view name = leading_name(braced ? after.substr(1) : after);
    const std::size_t size = name.size() + (braced ? 3 : 1);  // Includes "$", or "${" and "}".
    if (!after.empty() && after[0] == '$') {
      add_literal(pieces, "$");
      text.remove_prefix(2);
    } else if (name.empty() || (braced && (text.size() < size || text[size - 1] != '}'))) {
      add_literal(pieces, "$");
      text.remove_prefix(1);
    } else {
      pieces.push_back({std::string(text.substr(0, size)), std::string(name)});
      text.remove_prefix(size);
    }
  }
  return pieces;
}

std::string safe_substitute(std::string_view text, const TemplateValues& values) {
  std::string result;
  for (const TemplatePiece& piece : parse_template(text)) {
    const auto value = values.find(piece.name);
    result += value == values.end() ? piece.text : value->second;
  }
  return result;
}

}  // namespace muster
