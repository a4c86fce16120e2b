// Python's string.Template: "${name}", "$name", "$$". torchrun's users get the behaviour of
// safe_substitute. Names are ASCII identifiers (CPython 3.11, Lib/string.py).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct TemplatePiece {
  std::string text;  // As written in the template; "$" for an escaped "$$".
  std::string name;  // Empty: `text` is literal. Otherwise its value replaces `text`.
  bool operator==(const TemplatePiece&) const = default;
};

/// Neighbouring literals are joined. Never fails: a "$" that begins no name is literal.
std::vector<TemplatePiece> parse_template(std::string_view text);

/// The value for each name.
using TemplateValues = std::map<std::string_view, std::string>;

/// Names without a value stay unchanged.
std::string safe_substitute(std::string_view text, const TemplateValues& values);

}  // namespace muster
