#include "base/python_text.h"

#include <charconv>
#include <cstdlib>
#include <limits>

namespace muster {
namespace {

bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Removes digits, with single underscores between them, from the front of `rest` and appends them
/// to `digits`. Returns false if there are none.
bool consume_digits(std::string_view& rest, std::string& digits) {
  if (rest.empty() || !is_digit(rest[0])) return false;
  while (!rest.empty()) {
    if (is_digit(rest[0])) {
      digits += rest[0];
      rest.remove_prefix(1);
    } else if (rest[0] == '_' && rest.size() > 1 && is_digit(rest[1])) {
      rest.remove_prefix(1);
    } else {
      break;
    }
  }
  return true;
}

/// Removes a sign from the front of `rest`; appends a minus to `number`.
void consume_sign(std::string_view& rest, std::string& number) {
  if (rest.empty() || (rest[0] != '+' && rest[0] != '-')) return;
  if (rest[0] == '-') number += '-';
  rest.remove_prefix(1);
}

}  // namespace

std::string_view strip(std::string_view text) {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<std::int64_t> parse_python_int(std::string_view text) {
  std::string_view rest = strip(text);
  std::string number;
  consume_sign(rest, number);
  if (!consume_digits(rest, number) || !rest.empty()) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

std::optional<double> parse_python_float(std::string_view text) {
  std::string_view rest = strip(text);
  std::string number;
  consume_sign(rest, number);
  const std::string word = lower(rest);
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf" || word == "infinity") {
    const double infinity = std::numeric_limits<double>::infinity();
    return number.empty() ? infinity : -infinity;
  }
  bool any = consume_digits(rest, number);
  if (!rest.empty() && rest[0] == '.') {
    number += '.';
    rest.remove_prefix(1);
    any = consume_digits(rest, number) || any;
  }
  if (!any) return std::nullopt;
  if (!rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
    number += 'e';
    rest.remove_prefix(1);
    consume_sign(rest, number);
    if (!consume_digits(rest, number)) return std::nullopt;
  }
  if (!rest.empty()) return std::nullopt;
  // strtod instead of from_chars: a number that is too large becomes infinity, and one that is too
  // small becomes zero, as in Python. muster never sets a locale, so the decimal point is a point.
  return std::strtod(number.c_str(), nullptr);
}

std::string python_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string result(1, quote);
  for (const char c : text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      result.append({'\\', c});
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\r') {
      result += "\\r";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      result.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
    } else {
      result += c;
    }
  }
  return result += quote;
}

}  // namespace muster
