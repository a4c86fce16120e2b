#include "flat_json.h"

#include <charconv>
#include <system_error>

namespace muster {

namespace {

constexpr int kMaxDepth = 16;

bool starts_number(char c) {
  return c >= '0' && c <= '9';
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

/// Goes through a text from its begin to its end. Each function that reads something returns false
/// if that does not stand there.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  std::size_t position() const { return at_; }
  std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

  void skip_spaces() {
    while (!at_end() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n'))
      ++at_;
  }

  bool skip(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  /// Reads `(item (',' item)*)? close`. The opening bracket has been read.
  template <typename Item>
  bool list(char close, Item item) {
    skip_spaces();
    if (skip(close)) return true;
    for (;;) {
      if (!item()) return false;
      skip_spaces();
      if (skip(close)) return true;
      if (!skip(',')) return false;
    }
  }

  bool string(std::string* value) {
    if (!skip('"')) return false;
    while (!at_end()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\') {
        if (!escape(value)) return false;
      } else if (value != nullptr) {
        *value += c;
      }
    }
    return false;
  }

  /// Reads a value of any type, with the spaces around it.
  bool value(int depth) {
    skip_spaces();
    if (at_end() || depth > kMaxDepth) return false;
    const char c = text_[at_];
    if (c == '"') return string(nullptr);
    if (skip('[')) return list(']', [&] { return value(depth + 1); });
    if (skip('{')) return list('}', [&] { return member(nullptr, depth + 1); });
    if (c == '-' || starts_number(c)) return number();
    return literal("true") || literal("false") || literal("null");
  }

  /// Reads `"name": value`.
  bool member(std::string* name, int depth) {
    skip_spaces();
    if (!string(name)) return false;
    skip_spaces();
    return skip(':') && value(depth);
  }

 private:
  bool literal(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool number() {
    // from_chars and not strtod: after setlocale(), strtod expects a comma in some languages.
    double ignored = 0;
    const char* const begin = text_.data() + at_;
    const char* const last = text_.data() + text_.size();
    const auto [end, error] = std::from_chars(begin, last, ignored);
    const bool is_number =
        begin != last &&
        (starts_number(*begin) || (*begin == '-' && end - begin > 1 && starts_number(begin[1])));
    if (!is_number || error == std::errc::invalid_argument) return false;
    at_ += static_cast<std::size_t>(end - begin);
    return true;
  }

  bool escape(std::string* value) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (at_end()) return false;
    const char c = text_[at_++];
    std::uint32_t code = 0;
    if (c == 'u') {
      if (!hex(code)) return false;
      if (code >= 0xdc00 && code < 0xe000) return false;  // The second half of a pair.
      std::uint32_t low = 0;
      if (code >= 0xd800 && code < 0xdc00) {
        if (!skip('\\') || !skip('u') || !hex(low) || low < 0xdc00 || low >= 0xe000) return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
    } else {
      const std::size_t found = kLetters.find(c);
      if (found == std::string_view::npos) return false;
      code = static_cast<unsigned char>(kMeanings[found]);
    }
    if (value != nullptr) append_utf8(*value, code);
    return true;
  }

  bool hex(std::uint32_t& code) {
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4) return false;
    at_ += 4;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string_view without_spaces(std::string_view text) {
  static constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

std::optional<FlatJson> FlatJson::parse(std::string_view line) {
  FlatJson result;
  Cursor cursor(line);
  cursor.skip_spaces();
  if (!cursor.skip('{')) return std::nullopt;
  const bool is_object = cursor.list('}', [&] {
    std::string name;
    cursor.skip_spaces();
    if (!cursor.string(&name)) return false;
    cursor.skip_spaces();
    if (!cursor.skip(':')) return false;
    const std::size_t begin = cursor.position();
    if (!cursor.value(1)) return false;
    result.members_.emplace_back(std::move(name), without_spaces(cursor.since(begin)));
    return true;
  });
  cursor.skip_spaces();
  if (!is_object || !cursor.at_end()) return std::nullopt;
  return result;
}

std::optional<std::string_view> FlatJson::raw(std::string_view name) const {
  for (auto member = members_.rbegin(); member != members_.rend(); ++member)
    if (member->first == name) return member->second;
  return std::nullopt;
}

std::optional<std::string> FlatJson::text(std::string_view name) const {
  const auto value = raw(name);
  std::string text;
  if (!value || !Cursor(*value).string(&text)) return std::nullopt;
  return text;
}

std::optional<double> FlatJson::number(std::string_view name) const {
  const auto value = raw(name);
  double number = 0;
  if (!value) return std::nullopt;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size()) return std::nullopt;
  return number;
}

std::vector<std::string_view> FlatJson::items_of(std::string_view value) {
  std::vector<std::string_view> items;
  Cursor cursor(value);
  cursor.skip_spaces();
  if (!cursor.skip('[')) return {};
  const bool is_array = cursor.list(']', [&] {
    const std::size_t begin = cursor.position();
    if (!cursor.value(1)) return false;
    items.push_back(without_spaces(cursor.since(begin)));
    return true;
  });
  cursor.skip_spaces();
  return is_array && cursor.at_end() ? items : std::vector<std::string_view>();
}

std::optional<std::int64_t> FlatJson::integer_in(std::string_view value) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return number;
}

}  // namespace muster
