// What the plays share: how a command's words and times are read and written.
#pragma once

#include <charconv>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/time.h"

namespace muster::testing {

/// A command that is not valid. Its text replaces the command's output.
struct BadLine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;)
    words.push_back(word);
  return words;
}

inline int number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw BadLine(text + "?");
  return value;
}

/// "5" or "5.2"
inline Duration seconds(const std::string& text) {
  using namespace std::chrono_literals;
  const auto dot = text.find('.');
  Duration time = std::chrono::seconds(number(text.substr(0, dot)));
  if (dot != std::string::npos) time += 100ms * number(text.substr(dot + 1, 1));
  return time;
}

inline std::string text_of(Instant at) {
  const auto tenths = at.time_since_epoch() / std::chrono::milliseconds(100);
  return std::to_string(tenths / 10) + (tenths % 10 ? "." + std::to_string(tenths % 10) : "");
}

/// The words from index `from` on, joined with blanks.
inline std::string rest(const std::vector<std::string>& words, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < words.size(); ++i)
    text += (i > from ? " " : "") + words[i];
  return text;
}

/// "KEY=VALUE" or "KEY", for each word.
inline std::map<std::string, std::string> pairs(const std::vector<std::string>& words) {
  std::map<std::string, std::string> found;
  for (const std::string& word : words) {
    const auto equals = word.find('=');
    found[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return found;
}

inline void nothing_left(const std::map<std::string, std::string>& given) {
  if (!given.empty()) throw BadLine(given.begin()->first + "?");
}

}  // namespace muster::testing
