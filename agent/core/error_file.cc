#include "agent/core/error_file.h"

#include <charconv>
#include <limits>

#include <nlohmann/json.hpp>

#include "agent/core/strict_json.h"
#include "base/bounded_json.h"
#include "base/json_integer.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;  // Keeps the order of the keys.

// 2001-09-09 to 2286: a timestamp outside of this range comes from a clock that was never set.
constexpr std::int64_t kFirstPlausibleSecond = 1'000'000'000;
constexpr std::int64_t kLastPlausibleSecond = 9'999'999'999;

ErrorFileDefect defect_of(const JsonDefect& defect) {
  switch (defect.kind) {
    case JsonDefect::Kind::TooManyValues:
      return ErrorFileDefect::TooManyValues;
    case JsonDefect::Kind::TooDeep:
      return ErrorFileDefect::TooDeep;
    case JsonDefect::Kind::NotJson:
      break;
  }
  return defect.cut_off ? ErrorFileDefect::Torn : ErrorFileDefect::NotJson;
}

// Writes into `json`, or returns the defect. (The function does not return a Result, because Json
// converts implicitly from any type, errors included.)
std::optional<ErrorFileDefect> parse(std::string_view text, Json& json) {
  if (text.size() > kMaxErrorFileBytes) return ErrorFileDefect::TooLarge;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return ErrorFileDefect::Empty;
  constexpr JsonLimits kLimits{kMaxErrorFileValues, kMaxErrorFileDepth};
  auto defect = parse_bounded_json(text, kLimits, json);
  if (defect && defect->kind == JsonDefect::Kind::NotJson) {
    const std::string strict = strict_json(text);  // @record's writer is Python.
    if (strict != text) defect = parse_bounded_json(strict, kLimits, json);
  }
  return defect ? std::optional(defect_of(*defect)) : std::nullopt;
}

const Json* member(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

/// Null if the file has no message, or one that torchrun would not read.
const Json* message_of(const Json& file) {
  const Json* message = member(file, "message");
  return message != nullptr && (message->is_string() || message->is_object()) ? message : nullptr;
}

std::string as_text(const Json* json) {
  if (json == nullptr || json->is_null()) return "";
  if (const auto* text = json->get_ptr<const std::string*>()) return *text;
  return json->dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Accepts a number, or a text of digits, which is what @record writes.
std::optional<std::int64_t> as_integer(const Json* json) {
  if (json == nullptr) return std::nullopt;
  if (json->is_number_integer()) return integer_of<std::int64_t>(*json);
  if (json->is_number_float()) {
    const double number = json->get<double>();
    if (number > -9e15 && number < 9e15) return static_cast<std::int64_t>(number);
    return std::nullopt;
  }
  const auto* text = json->get_ptr<const std::string*>();
  if (text == nullptr) return std::nullopt;
  const std::size_t first = text->find_first_not_of(" \t\n");
  if (first == std::string::npos) return std::nullopt;
  std::int64_t number = 0;
  const char* end = text->data() + text->find_last_not_of(" \t\n") + 1;
  const auto [stopped, failure] = std::from_chars(text->data() + first, end, number);
  // A fraction is cut off: "1795252105.7" is a valid time.
  if (failure != std::errc{} || (stopped != end && *stopped != '.')) return std::nullopt;
  return number;
}

std::optional<std::int64_t> as_timestamp(const Json* json) {
  const auto second = as_integer(json);
  if (!second || *second < kFirstPlausibleSecond || *second > kLastPlausibleSecond)
    return std::nullopt;
  return second;
}

std::optional<int> as_code(const Json* json) {
  const auto code = as_integer(json);
  if (!code || *code < std::numeric_limits<int>::min() || *code > std::numeric_limits<int>::max())
    return std::nullopt;
  return static_cast<int>(*code);
}

}  // namespace

std::string_view describe(ErrorFileDefect defect) {
  switch (defect) {
    case ErrorFileDefect::Empty:
      return "it is empty";
    case ErrorFileDefect::Torn:
      return "it ends in the middle: the worker died while writing it, or the disk was full";
    case ErrorFileDefect::NotJson:
      return "it is not JSON";
    case ErrorFileDefect::TooLarge:
      return "it is larger than 1 MiB";
    case ErrorFileDefect::TooDeep:
      return "its JSON nests too deep";
    case ErrorFileDefect::TooManyValues:
      return "its JSON has more than 10,000 values";
    case ErrorFileDefect::NoMessage:
      return "its JSON has no \"message\"";
  }
  return "";
}

boost::system::result<ErrorRecord, ErrorFileDefect> read_error_file(std::string_view text) {
  Json json;
  if (const auto defect = parse(text, json)) return *defect;
  const Json* message = message_of(json);
  if (message == nullptr) return ErrorFileDefect::NoMessage;

  ErrorRecord record;
  if (message->is_string()) {
    record.message = as_text(message);
    record.timestamp_s = as_timestamp(member(json, "timestamp"));
    return record;
  }
  record.message = as_text(member(*message, "message"));
  record.error_code = as_code(member(*message, "errorCode"));
  if (const Json* extra = member(*message, "extraInfo")) {
    record.traceback = as_text(member(*extra, "py_callstack"));
    record.timestamp_s = as_timestamp(member(*extra, "timestamp"));
  }
  return record;
}

bool parse_error_file(std::string_view text, nlohmann::ordered_json& json) {
  return !parse(text, json) && message_of(json) != nullptr;
}

std::string write_error_file(const ErrorRecord& record) {
  Json extra = Json::object();
  extra["py_callstack"] = record.traceback.empty() ? record.message : record.traceback;
  // If torchrun is the parent, it fails on a file without a timestamp.
  extra["timestamp"] = std::to_string(record.timestamp_s.value_or(0));
  Json message = Json::object();
  message["message"] = record.message;
  message["extraInfo"] = std::move(extra);
  if (record.error_code) message["errorCode"] = *record.error_code;
  Json file = Json::object();
  file["message"] = std::move(message);
  return file.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> merge_error_file(std::string_view text, int exit_code) {
  Json json;
  if (parse(text, json) || message_of(json) == nullptr) return std::nullopt;
  Json& message = json["message"];
  if (message.is_object() && exit_code != 0) message["errorCode"] = exit_code;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
