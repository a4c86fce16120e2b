#include "rendezvous/messages/native_json.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/json_integer.h"
#include "base/printable_text.h"

namespace muster::native {

namespace {

const Json& no_fields() {
  static const Json none = Json::object();
  return none;
}

std::string reason_of(const JsonDefect& defect) {
  switch (defect.kind) {
    case JsonDefect::Kind::TooManyValues:
      return "more than " + std::to_string(kMaxNativeValues) + " values";
    case JsonDefect::Kind::TooDeep:
      return "more than " + std::to_string(kMaxNativeDepth) + " levels";
    case JsonDefect::Kind::NotJson:
      break;
  }
  return "not JSON";
}

}  // namespace

std::optional<NativeError> parse_json(std::string_view text, Json& value) {
  const auto defect = parse_bounded_json(text, {kMaxNativeValues, kMaxNativeDepth}, value);
  return defect ? std::optional(NativeError{{}, reason_of(*defect)}) : std::nullopt;
}

void Fields::fail(const char* name, std::string reason) {
  if (!error_) error_ = NativeError{path_ + name, std::move(reason)};
}

bool Fields::has(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

const Json* Fields::find(const char* name) {
  if (error_) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  fail(name, "missing");
  return nullptr;
}

std::string Fields::text(const char* name, std::size_t most) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  const auto* text = value->get_ptr<const std::string*>();
  if (text == nullptr) {
    fail(name, std::string("a text is wanted, this is: ") + value->type_name());
    return {};
  }
  if (text->size() <= most) return *text;
  fail(name, "longer than " + std::to_string(most) + " bytes");
  return {};
}

bool Fields::boolean(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, std::string("true or false is wanted, this is: ") + value->type_name());
  return false;
}

std::int64_t Fields::integer(const char* name, std::int64_t least, std::int64_t most) {
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

std::size_t Fields::index_of(const char* name, std::span<const std::string_view> names) {
  const std::string value = text(name);
  const auto found = std::find(names.begin(), names.end(), value);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string known;
  for (const std::string_view each : names)
    known.append(known.empty() ? "" : ", ").append(each);
  fail(name, "\"" + printable_text(value, 64) + "\" is none of: " + known);
  return 0;
}

Fields Fields::object(const char* name) {
  const Json* value = find(name);
  std::string path = path_ + name + ".";
  if (value != nullptr && value->is_object()) return {*value, error_, std::move(path)};
  if (value != nullptr)
    fail(name, std::string("an object is wanted, this is: ") + value->type_name());
  return {no_fields(), error_, std::move(path)};
}

/// Null if the field is not a list, or has more than `most` elements.
const Json* Fields::list_of(const char* name, std::size_t most) {
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

Fields Fields::element(const char* name, const Json& list, std::size_t index) {
  std::string path = path_ + name + "[" + std::to_string(index) + "].";
  if (list[index].is_object()) return {list[index], error_, std::move(path)};
  fail(name,
       std::string("a list of objects is wanted, one element is: ") + list[index].type_name());
  return {no_fields(), error_, std::move(path)};
}

std::string read_hex(Fields& fields, const char* name) {
  std::string text = fields.text(name, kProofDigits);
  const bool is_hex = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (text.size() != kProofDigits || !is_hex)
    fields.fail(name, "not " + std::to_string(kProofDigits) + " hexadecimal digits");
  return text;
}

}  // namespace muster::native
