#include "base/config_json.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/nearest_name.h"
#include "base/printable_text.h"

namespace muster {
namespace {

using ConfigValue = nlohmann::json;

constexpr std::size_t kShownBytes = 64;
std::string_view allowed(ConfigKind kind) {
  switch (kind) {
    case ConfigKind::Flag:
      return "true or false";
    case ConfigKind::Size:
      return "a number of bytes, or a text such as \"2G\"";
    case ConfigKind::Number:
      return "a number";
    case ConfigKind::Text:
      return "a text";
    case ConfigKind::Texts:
      break;
  }
  return "a text or a list of texts";
}

// Reads the events of the parser instead of a parsed object. So it keeps no value that is not
// allowed, and it can refuse a key that comes twice.
class ConfigReader : public nlohmann::json_sax<ConfigValue> {
 public:
  ConfigReader(std::string_view text, std::span<const ConfigKey> keys) : text_(text), keys_(keys) {}

  ConfigFile take() { return std::move(file_); }

  bool null() override { return value("null", ConfigKind::Flag, false); }
  bool boolean(bool on) override {
    if (depth_ != 1 || known_ == nullptr || known_->kind != ConfigKind::Flag)
      return value(on ? "true" : "false", ConfigKind::Flag, false);
    if (on) file_.entries.push_back({known_->name, {}});
    return true;
  }
  bool number_integer(number_integer_t number) override {
    return value(std::to_string(number), ConfigKind::Number, true);
  }
  bool number_unsigned(number_unsigned_t number) override {
    return value(std::to_string(number), ConfigKind::Number, true);
  }
  bool number_float(number_float_t, const string_t& digits) override {
    return value(digits, ConfigKind::Number, false);
  }
  bool string(string_t& text) override { return value(text, ConfigKind::Text, true); }
  bool binary(binary_t&) override { return true; }  // JSON has none.
  bool key(string_t& name) override;
  bool start_object(std::size_t) override { return begin_level(false); }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return begin_level(true); }
  bool end_array() override {
    if (--depth_ == 1 && list_ && known_ != nullptr)
      file_.entries.push_back({known_->name, values_});
    list_ = false;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override;

 private:
  /// `usual`: a value of this kind may also stand for a text.
  bool value(const std::string& shown, ConfigKind kind, bool usual);
  bool begin_level(bool list);
  void fail(std::string_view found);

  std::string_view text_;
  std::span<const ConfigKey> keys_;
  ConfigFile file_;
  std::set<std::string, std::less<>> seen_;
  std::size_t depth_ = 0;
  const ConfigKey* known_ = nullptr;  // The key of the next value; null: the value is ignored.
  bool list_ = false;                 // The reader is within a list of texts.
  std::vector<std::string> values_;   // The values of that list.
};

bool ConfigReader::key(string_t& name) {
  if (depth_ != 1) return true;  // In an inner object, which is already refused.
  known_ = nullptr;
  const std::string shown = printable_text(name, kShownBytes);
  if (!seen_.insert(name).second) {
    file_.errors.push_back("key \"" + shown + "\" is there twice: leave one of them out");
    return true;
  }
  const auto found = std::find_if(keys_.begin(), keys_.end(),
                                  [&](const ConfigKey& each) { return each.name == name; });
  if (found != keys_.end()) {
    known_ = &*found;
    return true;
  }
  std::string error = "key \"" + shown + "\" is not known";
  std::vector<std::string_view> names;
  for (const ConfigKey& each : keys_)
    names.push_back(each.name);
  const std::string_view nearest = nearest_name(name, names);
  error += nearest.empty()
               ? "; keys are the long names of the options, without the hyphens in front"
               : "; did you mean \"" + std::string(nearest) + "\"?";
  file_.errors.push_back(std::move(error));
  return true;
}

bool ConfigReader::value(const std::string& shown, ConfigKind kind, bool usual) {
  if (depth_ == 0) {
    file_.errors.push_back("an object is wanted: {\"port\": 29400}");
    return false;
  }
  if (known_ == nullptr) return true;
  const bool is_text = kind == ConfigKind::Text;
  const bool stands_for_text = usual && (is_text || kind == ConfigKind::Number);
  const bool fits =
      list_ ? depth_ == 2 && is_text
            : (known_->kind == ConfigKind::Number && kind == ConfigKind::Number) ||
                  (known_->kind == ConfigKind::Text && stands_for_text) ||
                  (known_->kind == ConfigKind::Size && (is_text || kind == ConfigKind::Number)) ||
                  (known_->kind == ConfigKind::Texts && is_text);
  if (!fits) {
    fail(is_text ? "\"" + printable_text(shown, kShownBytes) + "\"" : shown);
    return true;
  }
  if (!list_) {
    file_.entries.push_back({known_->name, {shown}});
    return true;
  }
  values_.push_back(shown);
  if (values_.size() > kMaxConfigValues) {
    file_.errors.push_back("key \"" + known_->name + "\": more than " +
                           std::to_string(kMaxConfigValues) + " values");
    known_ = nullptr;
  }
  return true;
}

bool ConfigReader::begin_level(bool list) {
  ++depth_;
  if (depth_ == 1) {
    if (!list) return true;
    file_.errors.emplace_back("an object is wanted, this is a list: {\"port\": 29400}");
    return false;
  }
  if (known_ == nullptr) return true;
  if (depth_ == 2 && list && known_->kind == ConfigKind::Texts) {
    list_ = true;
    values_.clear();
    return true;
  }
  fail(list ? "a list" : "an object");
  return true;
}

void ConfigReader::fail(std::string_view found) {
  file_.errors.push_back("key \"" + known_->name + "\": " + std::string(found) + " is not " +
                         std::string(allowed(known_->kind)));
  known_ = nullptr;
}

bool ConfigReader::parse_error(std::size_t position, const std::string&,
                               const nlohmann::detail::exception&) {
  // `position` counts from 1. It is the position of the first byte that is not allowed.
  const std::string_view before =
      text_.substr(0, std::min(position == 0 ? 0 : position - 1, text_.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0.
  file_.errors.push_back("not JSON: line " + std::to_string(line) + ", column " +
                         std::to_string(before.size() - line_begin + 1));
  return false;
}

}  // namespace

ConfigFile decode_config(std::string_view text, std::span<const ConfigKey> keys) {
  if (text.size() > kMaxConfigBytes) {
    ConfigFile refused;
    refused.errors.push_back("longer than " + std::to_string(kMaxConfigBytes) + " bytes");
    return refused;
  }
  ConfigReader reader(text, keys);
  ConfigValue::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace muster
