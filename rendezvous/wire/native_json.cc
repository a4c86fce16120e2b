#include "rendezvous/wire/native_json.h"

#include <algorithm>
#include <vector>

#include "rendezvous/core/json_integer.h"
#include "rendezvous/wire/printable_text.h"

namespace muster::native {

namespace {

const Json& no_fields() {
  static const Json none = Json::object();
  return none;
}

// Builds the value of a text, and stops where the text exceeds a limit.
class BoundedBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit BoundedBuilder(Json& root) : root_(root) {}

  const std::string& reason() const { return reason_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has no such values.
  bool start_object(std::size_t) override { return begin_level(Json::object()); }
  bool start_array(std::size_t) override { return begin_level(Json::array()); }
  bool end_object() override { return end_level(); }
  bool end_array() override { return end_level(); }
  bool key(string_t& name) override {
    member_ = &(*levels_.back())[std::move(name)];
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    reason_ = "not JSON";
    return false;
  }

 private:
  bool add(Json value) {
    if (++values_ > kMaxNativeValues) {
      reason_ = "more than " + std::to_string(kMaxNativeValues) + " values";
      return false;
    }
    if (levels_.empty())
      added_ = &(root_ = std::move(value));
    else if (levels_.back()->is_array())
      added_ = &levels_.back()->emplace_back(std::move(value));
    else
      added_ = &(*member_ = std::move(value));
    return true;
  }
  bool begin_level(Json empty) {
    if (levels_.size() == kMaxNativeDepth) {
      reason_ = "more than " + std::to_string(kMaxNativeDepth) + " levels";
      return false;
    }
    if (!add(std::move(empty))) return false;
    levels_.push_back(added_);
    return true;
  }
  bool end_level() {
    levels_.pop_back();
    return true;
  }

  Json& root_;
  // The open objects and lists, the outermost first. Only the last one grows, so their addresses do
  // not change.
  std::vector<Json*> levels_;
  Json* member_ = nullptr;  // The value of the last key in the innermost object.
  Json* added_ = nullptr;
  std::size_t values_ = 0;
  std::string reason_;
};

}  // namespace

std::optional<NativeError> parse_json(std::string_view text, Json& value) {
  BoundedBuilder builder(value);
  if (!Json::sax_parse(text, &builder)) return NativeError{{}, builder.reason()};
  return std::nullopt;
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

}  // namespace muster::native
