// Python's string.Template, of which torchrun lets users see safe_substitute: "${name}", "$name",
// "$$". Names are ASCII identifiers (CPython 3.11, Lib/string.py).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct TemplatePiece {
  std::string text;  // As it stands in the template; "$" for an escaped "$$".
  std::string name;  // Empty: `text` is literal. Else: what to replace `text` by.
  bool operator==(const TemplatePiece&) const = default;
};

/// Neighbouring literals are joined. Never fails: a "$" that begins nothing is literal.
std::vector<TemplatePiece> parse_template(std::string_view text);

using TemplateLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Names that `lookup` does not know stay as they are.
std::string safe_substitute(std::string_view text, const TemplateLookup& lookup);

}  // namespace muster
