#include "base/json_fields.h"

#include <cmath>

#include "base/base64.h"
#include "base/json_integer.h"
#include "base/printable_text.h"

namespace muster {

namespace {

constexpr std::size_t kMaxNameBytes = std::size_t{16} << 10;  // Of one_of(), before it is known.

const nlohmann::json& no_fields() {
  static const nlohmann::json none = nlohmann::json::object();
  return none;
}

}  // namespace

void JsonWriter::begin(const char* name) {
  out_ += std::exchange(is_empty_, false) ? "\"" : ",\"";
  out_.append(name).append("\":");
}

void JsonWriter::add(const char* name, std::string_view json) {
  begin(name);
  out_ += json;
}

void JsonWriter::text(const char* name, const std::string& value, const TextRule& rule) {
  if (rule.cut != nullptr) return text(name, rule.cut(value), std::string::npos);
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  begin(name);
  if (is_plain)
    out_.append("\"").append(value).append("\"");
  else
    out_ += nlohmann::json(value).dump(-1, ' ', characters_ == Characters::Ascii,
                                       nlohmann::json::error_handler_t::replace);
}

void JsonWriter::real(const char* name, double value, double /*most*/) {
  add(name, nlohmann::json(value).dump());
}

void JsonWriter::base64(const char* name, const std::string& bytes, std::size_t most) {
  add(name, "\"" + base64_encode(std::string_view(bytes).substr(0, most)) + "\"");
}

void JsonReader::fail(const char* name, std::string reason) {
  if (!error_) error_ = JsonFieldError{path_ + name, std::move(reason)};
}

bool JsonReader::has(const char* name, bool /*is_given*/) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

const JsonReader::Json* JsonReader::find(const char* name) {
  if (error_) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  fail(name, "missing");
  return nullptr;
}

void JsonReader::text(const char* name, std::string& value, const TextRule& rule) {
  const Json* found = find(name);
  if (found == nullptr) return;
  const auto* text = found->get_ptr<const std::string*>();
  if (text == nullptr)
    fail(name, std::string("a text is wanted, this is: ") + found->type_name());
  else if (text->size() > rule.most)
    fail(name, "longer than " + std::to_string(rule.most) + " bytes");
  else
    value = *text;
}

void JsonReader::hex(const char* name, std::string& value, std::size_t digits) {
  text(name, value, digits);
  const bool is_hex = std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (value.size() != digits || !is_hex)
    fail(name, "not " + std::to_string(digits) + " hexadecimal digits");
}

void JsonReader::base64(const char* name, std::string& bytes, std::size_t most) {
  std::string digits;
  text(name, digits, (most + 2) / 3 * 4);
  if (auto decoded = base64_decode(digits))
    bytes = *std::move(decoded);
  else
    fail(name, "not base64");
}

void JsonReader::flag(const char* name, bool& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (found->is_boolean())
    value = found->get<bool>();
  else
    fail(name, std::string("true or false is wanted, this is: ") + found->type_name());
}

std::int64_t JsonReader::integer(const char* name, std::int64_t least, std::int64_t most) {
  const Json* value = find(name);
  if (value == nullptr) return least;
  if (!value->is_number_integer()) {
    fail(name, std::string("a whole number is wanted, this is: ") + value->type_name());
    return least;
  }
  if (const auto number = integer_within(*value, least, most)) return *number;
  fail(name,
       value->dump() + " is not within " + std::to_string(least) + " to " + std::to_string(most));
  return least;
}

void JsonReader::real(const char* name, double& value, double most) {
  const Json* found = find(name);
  if (found == nullptr) return;
  if (!found->is_number())
    fail(name, std::string("a number is wanted, this is: ") + found->type_name());
  else if (!(std::abs(found->get<double>()) <= most))
    fail(name, found->dump() + " is too large");
  else
    value = found->get<double>();
}

std::size_t JsonReader::index_of(const char* name, std::span<const std::string_view> names) {
  std::string value;
  text(name, value, kMaxNameBytes);
  const auto found = std::find(names.begin(), names.end(), value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string known;
  for (const std::string_view each : names)
    known.append(known.empty() ? "" : ", ").append(each);
  fail(name, "\"" + printable_text(value, 64) + "\" is none of: " + known);
  return 0;
}

JsonReader JsonReader::object_at(const char* name) {
  const Json* value = find(name);
  std::string path = path_ + name + ".";
  if (value != nullptr && value->is_object()) return {*value, error_, std::move(path)};
  if (value != nullptr)
    fail(name, std::string("an object is wanted, this is: ") + value->type_name());
  return {no_fields(), error_, std::move(path)};
}

const JsonReader::Json* JsonReader::list_of(const char* name, std::size_t most) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    fail(name, std::string("a list is wanted, this is: ") + value->type_name());
    return nullptr;
  }
  if (value->size() <= most) return value;
  fail(name, "more than " + std::to_string(most) + " elements");
  return nullptr;
}

JsonReader JsonReader::element(const char* name, const Json& list, std::size_t index) {
  std::string path = path_ + name + "[" + std::to_string(index) + "].";
  if (list[index].is_object()) return {list[index], error_, std::move(path)};
  fail(name,
       std::string("a list of objects is wanted, one element is: ") + list[index].type_name());
  return {no_fields(), error_, std::move(path)};
}

}  // namespace muster
