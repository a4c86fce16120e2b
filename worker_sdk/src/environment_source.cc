#include "environment_source.h"

#include <charconv>

namespace muster {

std::optional<int> parse_whole(std::string_view text, Bounds bounds) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = !text.empty() && end == text.data() + text.size();
  if (!is_whole || error != std::errc{}) return std::nullopt;
  if (number < bounds.least || number > bounds.most) return std::nullopt;
  return number;
}

std::optional<std::string> EnvironmentSource::text(std::string_view name) const {
  auto value = lookup_(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

std::string EnvironmentSource::text_or(std::string_view name, std::string_view fallback) const {
  return text(name).value_or(std::string(fallback));
}

std::optional<int> EnvironmentSource::number(std::string_view name, Bounds bounds) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  if (const auto parsed = parse_whole(*value, bounds)) return parsed;
  std::string expected = "a whole number from " + std::to_string(bounds.least);
  if (bounds.most == std::numeric_limits<int>::max())
    expected += " on";
  else
    expected += " to " + std::to_string(bounds.most);
  fail(name, expected);
}

int EnvironmentSource::number_or(std::string_view name, int fallback, Bounds bounds) const {
  return number(name, bounds).value_or(fallback);
}

int EnvironmentSource::required(std::string_view name, Bounds bounds) const {
  if (const auto value = number(name, bounds)) return *value;
  fail_missing(name, "");
}

std::string EnvironmentSource::required_text(std::string_view name, std::string_view what) const {
  if (auto value = text(name)) return *std::move(value);
  fail_missing(name, what);
}

void EnvironmentSource::fail(std::string_view name, std::string_view expected) const {
  const std::string value = text(name).value_or("");
  throw Error(std::string(name) + "=\"" + value + "\": expected " + std::string(expected) + ". " +
              std::string(setter_) + " sets it for each process.");
}

void EnvironmentSource::fail_missing(std::string_view name, std::string_view advice) const {
  std::string message = std::string(name) + " is not set. " + std::string(setter_) +
                        " sets it for each process; started by hand, set it yourself.";
  if (!advice.empty()) message += " " + std::string(advice);
  throw Error(message);
}

}  // namespace muster
