#include "agent/core/error_file.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using Json = nlohmann::json;

ErrorRecord read(const std::string& text) {
  const auto record = read_error_file(text);
  INFO(text);
  REQUIRE(record.has_value());
  return *record;
}

ErrorFileDefect defect(const std::string& text) {
  const auto record = read_error_file(text);
  INFO(text.substr(0, 100));
  REQUIRE_FALSE(record.has_value());
  return record.error();
}

TEST_CASE("error_file: a file of @record is read", "[unit][agent]") {
  const ErrorRecord record = read(
      R"({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack":)"
      R"( "Traceback (most recent call last):\n  File \"x.py\"\n", "timestamp": "1795252105"}}})");
  CHECK(record.message == "ValueError: boom");
  CHECK(record.traceback == "Traceback (most recent call last):\n  File \"x.py\"\n");
  CHECK(record.timestamp_s == 1795252105);
  CHECK_FALSE(record.error_code.has_value());
}

TEST_CASE("error_file: timestamps come in several shapes, and may be missing", "[unit][agent]") {
  const auto stamp = [](const std::string& json) {
    return read(R"({"message": {"message": "m", "extraInfo": {"timestamp": )" + json + "}}}")
        .timestamp_s;
  };
  CHECK(stamp("1795252105") == 1795252105);
  CHECK(stamp("1795252105.9") == 1795252105);
  CHECK(stamp("\" 1795252105\\n\"") == 1795252105);
  CHECK(stamp("\"1795252105.25\"") == 1795252105);
  // Times in 1970 and in the year 56,000 are refused.
  for (const char* absurd : {"0", "\"0\"", "-1", "1e300", "1795252105000", "18446744073709551615",
                             "\"\"", "\" \"", "\"soon\"", "\"1795252105s\"", "null", "true",
                             "[1795252105]", "\"99999999999999999999\""}) {
    INFO(absurd);
    CHECK_FALSE(stamp(absurd).has_value());
  }
  CHECK_FALSE(read(R"({"message": {"message": "m"}})").timestamp_s.has_value());
  CHECK_FALSE(read(R"({"message": {"message": "m", "extraInfo": 3}})").timestamp_s.has_value());
}

TEST_CASE("error_file: a message that is a text is read", "[unit][agent]") {
  CHECK(read(R"({"message": "boom", "timestamp": 1795252105})").timestamp_s == 1795252105);
  CHECK(read(R"({"message": "boom"})").message == "boom");
  CHECK_FALSE(read(R"({"message": "boom"})").timestamp_s.has_value());
  CHECK(read(R"({"message": ""})") == ErrorRecord{});
}

TEST_CASE("error_file: fields of unusual types are shown and not dropped", "[unit][agent]") {
  const ErrorRecord record = read(
      R"({"message": {"message": {"a": [1]}, "errorCode": 17, "extraInfo": {"py_callstack": 5}}})");
  CHECK(record.message == R"({"a":[1]})");
  CHECK(record.traceback == "5");
  CHECK(record.error_code == 17);
  CHECK_FALSE(read(R"({"message": {"errorCode": 99999999999}})").error_code.has_value());
  CHECK(read(R"({"message": {"errorCode": "-9"}})").error_code == -9);
}

TEST_CASE("error_file: texts that only Python's json accepts are read", "[unit][agent]") {
  const std::string text =
      R"({"message": {"message": "no file 'caf\udce9'", "loss": NaN, "extraInfo": )"
      R"({"py_callstack": "Traceback", "timestamp": "1795252105"}}})";
  const auto record = read_error_file(text);
  REQUIRE(record.has_value());
  CHECK(record->message == "no file 'caf\xef\xbf\xbd'");
  CHECK(record->traceback == "Traceback");
  const auto merged = merge_error_file(text, 3);
  REQUIRE(merged.has_value());
  CHECK(read_error_file(*merged)->error_code == 3);
  CHECK(read_error_file(text.substr(0, text.size() - 9)).error() == ErrorFileDefect::Torn);
}

TEST_CASE("error_file: each kind of unreadable file has its own defect", "[unit][agent]") {
  CHECK(defect("") == ErrorFileDefect::Empty);
  CHECK(defect(" \n") == ErrorFileDefect::Empty);
  CHECK(defect("Traceback") == ErrorFileDefect::NotJson);
  CHECK(defect("{\"message\": 'x'}") == ErrorFileDefect::NotJson);
  CHECK(defect("{\"message\": \"\xff\"}") == ErrorFileDefect::NotJson);
  CHECK(defect(std::string(8, '\0')) == ErrorFileDefect::NotJson);
  CHECK(defect("{}") == ErrorFileDefect::NoMessage);
  CHECK(defect("[]") == ErrorFileDefect::NoMessage);
  CHECK(defect("7") == ErrorFileDefect::NoMessage);
  CHECK(defect("null") == ErrorFileDefect::NoMessage);
  CHECK(defect("{\"message\": null}") == ErrorFileDefect::NoMessage);
  CHECK(defect("{\"message\": [1]}") == ErrorFileDefect::NoMessage);
  for (const auto one : {ErrorFileDefect::Empty, ErrorFileDefect::Torn, ErrorFileDefect::NotJson,
                         ErrorFileDefect::TooLarge, ErrorFileDefect::TooDeep,
                         ErrorFileDefect::TooManyValues, ErrorFileDefect::NoMessage})
    CHECK_FALSE(describe(one).empty());
}

TEST_CASE("error_file: a file that is cut at any byte is reported as torn", "[unit][agent]") {
  const std::string whole =
      R"({"message": {"message": "m\u00e9", "extraInfo": {"timestamp": "17", "x": [true, 1.5]}}})";
  for (std::size_t size = 1; size < whole.size(); ++size) {
    INFO(size);
    CHECK(defect(whole.substr(0, size)) == ErrorFileDefect::Torn);
  }
}

TEST_CASE("error_file: size and depth have limits, which are reached", "[unit][agent]") {
  const std::string head = R"({"message": ")";
  const std::string tail = "\"}";
  const std::string padding(kMaxErrorFileBytes - head.size() - tail.size(), 'x');
  CHECK(read(head + padding + tail).message == padding);
  CHECK(defect(head + padding + "x" + tail) == ErrorFileDefect::TooLarge);

  const auto nested = [](std::size_t n) {
    return "{\"message\": \"m\", \"deep\": " + std::string(n, '[') + std::string(n, ']') + "}";
  };
  CHECK(read(nested(kMaxErrorFileDepth - 1)).message == "m");
  CHECK(defect(nested(kMaxErrorFileDepth + 1)) == ErrorFileDefect::TooDeep);
  CHECK(defect(nested(200'000)) == ErrorFileDefect::TooDeep);
  CHECK_FALSE(merge_error_file(nested(200'000), 1).has_value());

  const auto list_of = [](std::size_t elements, const std::string& element) {
    std::string list = R"({"message": "m", "list": [null)";
    for (std::size_t i = 1; i < elements; ++i)
      list += "," + element;
    return list + "]}";
  };
  CHECK(read(list_of(kMaxErrorFileValues - 3, "0")).message == "m");
  CHECK(defect(list_of(kMaxErrorFileValues - 2, "0")) == ErrorFileDefect::TooManyValues);
  CHECK(defect(list_of(300'000, "{}")) == ErrorFileDefect::TooManyValues);
}

TEST_CASE("error_file: a written file can be read again", "[unit][agent]") {
  const ErrorRecord record{"boom \"quoted\"", "line 1\nline 2", 1795252105, -9};
  CHECK(read(write_error_file(record)) == record);
  const Json json = Json::parse(write_error_file({"m", "", 1795252105, std::nullopt}));
  CHECK(json == Json::parse(R"({"message": {"message": "m",
      "extraInfo": {"py_callstack": "m", "timestamp": "1795252105"}}})"));
  CHECK(read(write_error_file({"broken \xff text", "", {}, {}})).message ==
        "broken \xef\xbf\xbd text");
}

TEST_CASE("error_file: the copy for the parent has the exit code and all other fields",
          "[unit][agent]") {
  const std::string text =
      R"({"z": 1, "message": {"message": "m", "extraInfo": {"timestamp": "17", "odd": []}}})";
  const auto merged = merge_error_file(text, 3);
  REQUIRE(merged.has_value());
  Json expected = Json::parse(text);
  expected["message"]["errorCode"] = 3;
  CHECK(Json::parse(*merged) == expected);
  CHECK(Json::parse(*merge_error_file(text, 0)) == Json::parse(text));
  // A message that is a text has no place for the exit code: the file is passed on unchanged.
  CHECK(Json::parse(*merge_error_file(R"({"message": "m"})", 3)) ==
        Json::parse(R"({"message": "m"})"));
  CHECK_FALSE(merge_error_file("", 3).has_value());
  CHECK_FALSE(merge_error_file("{\"mess", 3).has_value());
  CHECK_FALSE(merge_error_file("[1]", 3).has_value());
  CHECK_FALSE(merge_error_file(R"({"message": 9})", 3).has_value());  // torchrun crashes on it.
}

}  // namespace
}  // namespace muster
