// Parses JSON of another program within limits, in a time of at most n log n for n bytes.
//
// nlohmann's parser alone has no limits: an array of small values takes many times the memory of
// its text. With its callback, an array of n objects takes a time proportional to n * n.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster {

struct JsonLimits {
  std::size_t values = 0;  // Including objects, arrays, and their members and elements.
  std::size_t depth = 0;   // Nested objects and arrays, including the outermost one.
};

/// Why a text has no value.
struct JsonDefect {
  enum class Kind { NotJson, TooManyValues, TooDeep };
  Kind kind = Kind::NotJson;
  bool cut_off = false;  // NotJson because the text ends too early.
};

/// Builds the value of a text, and stops where the text exceeds a limit. `Json` is nlohmann::json
/// or nlohmann::ordered_json.
template <typename Json>
class BoundedJsonBuilder : public nlohmann::json_sax<Json> {
 public:
  BoundedJsonBuilder(const JsonLimits& limits, std::size_t text_bytes, Json& root)
      : limits_(limits), text_bytes_(text_bytes), root_(root) {}

  const JsonDefect& defect() const { return defect_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Json::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Json::number_float_t value,
                    const typename Json::string_t& /*text*/) override {
    return add(value);
  }
  bool string(typename Json::string_t& value) override { return add(std::move(value)); }
  bool binary(typename Json::binary_t& /*value*/) override { return false; }  // Not in a text.
  bool start_object(std::size_t /*size*/) override { return begin_level(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return begin_level(Json::array()); }
  bool end_object() override { return end_level(); }
  bool end_array() override { return end_level(); }
  bool key(typename Json::string_t& name) override {
    if constexpr (kIsOrdered)
      member_ = &member_of_ordered(std::move(name));
    else
      member_ = &(*levels_.back())[std::move(name)];
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    // If the text ends too early, the parser reports a position one past the end.
    constexpr int kSyntaxError = 101;
    defect_ = {JsonDefect::Kind::NotJson, error.id == kSyntaxError && position > text_bytes_};
    return false;
  }

 private:
  static constexpr bool kIsOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  /// ordered_json would compare the name with those of all members before it.
  Json& member_of_ordered(std::string name) {
    auto& object = levels_.back()->template get_ref<typename Json::object_t&>();
    typename Json::object_t::Container& members = object;
    const auto [place, is_new] = places_.back().try_emplace(name, members.size());
    if (is_new) members.emplace_back(std::move(name), nullptr);
    return members[place->second].second;
  }
  bool fail(JsonDefect::Kind kind) {
    defect_.kind = kind;
    return false;
  }
  bool add(Json value) {
    if (++values_ > limits_.values) return fail(JsonDefect::Kind::TooManyValues);
    if (levels_.empty())
      added_ = &(root_ = std::move(value));
    else if (levels_.back()->is_array())
      added_ = &levels_.back()->emplace_back(std::move(value));
    else
      added_ = &(*member_ = std::move(value));
    return true;
  }
  bool begin_level(Json empty) {
    if (levels_.size() == limits_.depth) return fail(JsonDefect::Kind::TooDeep);
    if (!add(std::move(empty))) return false;
    levels_.push_back(added_);
    if (kIsOrdered) places_.emplace_back();
    return true;
  }
  bool end_level() {
    levels_.pop_back();
    if (kIsOrdered) places_.pop_back();
    return true;
  }

  JsonLimits limits_;
  std::size_t text_bytes_;
  Json& root_;
  // The open objects and arrays, the outermost first. Only the last one grows, so their addresses
  // do not change.
  std::vector<Json*> levels_;
  /// The place of each name in the open objects. Only for ordered_json.
  std::vector<std::map<std::string, std::size_t>> places_;
  Json* member_ = nullptr;  // The value of the last key in the innermost object.
  Json* added_ = nullptr;
  std::size_t values_ = 0;
  JsonDefect defect_;
};

/// Parses `text` into `value`. With a defect, `value` holds what came before it. Of several members
/// with the same name, the last one counts.
template <typename Json>
std::optional<JsonDefect> parse_bounded_json(std::string_view text, const JsonLimits& limits,
                                             Json& value) {
  BoundedJsonBuilder<Json> builder(limits, text.size(), value);
  if (!Json::sax_parse(text, &builder)) return builder.defect();
  return std::nullopt;
}

}  // namespace muster
