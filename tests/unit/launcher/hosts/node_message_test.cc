// What goes over ssh between muster and the muster of another host.

#include "launcher/hosts/node_message.h"

#include <string>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

using Catch::Contains;

std::string without_line_feed(std::string text) {
  REQUIRE(!text.empty());
  REQUIRE(text.back() == '\n');
  text.pop_back();
  REQUIRE(text.find('\n') == std::string::npos);
  return text;
}

std::string job_error_of(const std::string& line) {
  const auto job = decode_node_job(line);
  REQUIRE(job.has_error());
  return job.error().message;
}

TEST_CASE("node message: a greeting among other lines", "[unit][launcher]") {
  CHECK(version_of_greeting(without_line_feed(greeting("1.2.3"))) == "1.2.3");
  CHECK(version_of_greeting("muster-node 1.2\r") == "1.2");
  CHECK(!version_of_greeting("Welcome to Ubuntu"));
  CHECK(!version_of_greeting(""));
}

TEST_CASE("node message: a job keeps each byte", "[unit][launcher]") {
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  const NodeJob job{.folder = "/data/\xff\xc3\xa4 b",
                    .environment = {{"A", "x=y\n'\"$"}, {"B", ""}, {"C", bytes}},
                    .arguments = {"muster", "", "a b", "it's $HOME", bytes},
                    .max_silence_s = 7};
  const auto decoded = decode_node_job(without_line_feed(encode_node_job(job)));
  REQUIRE(decoded.has_value());
  CHECK(*decoded == job);
}

TEST_CASE("node message: a host that hears nothing goes on for 5 minutes", "[unit][launcher]") {
  const auto job = decode_node_job(without_line_feed(encode_node_job({.folder = "/"})));
  REQUIRE(job.has_value());
  CHECK(job->max_silence_s == 300);
  for (const char* limit : {"", R"(,"max_silence_s":0)", R"(,"max_silence_s":1e9)"})
    CHECK_THAT(job_error_of(R"({"folder":"/","environment":{},"arguments":["muster"])" +
                            std::string(limit) + "}"),
               Contains("no limit of silence"));
}

TEST_CASE("node message: what is no job is named", "[unit][launcher]") {
  CHECK_THAT(job_error_of(""), Contains("no JSON object"));
  CHECK_THAT(job_error_of("[]"), Contains("no JSON object"));
  CHECK_THAT(job_error_of(R"({"environment":{},"arguments":[]})"), Contains("no folder"));
  CHECK_THAT(job_error_of(R"({"folder":"/","environment":[],"arguments":[]})"),
             Contains("no environment"));
  CHECK_THAT(job_error_of(R"({"folder":"/","environment":{},"arguments":{}})"),
             Contains("no arguments"));
  CHECK_THAT(job_error_of(R"({"folder":"/","environment":{"A=B":"x"},"arguments":[]})"),
             Contains("environment"));
  CHECK_THAT(job_error_of(R"({"folder":"/","environment":{"A":1},"arguments":[]})"),
             Contains("environment"));
  CHECK_THAT(job_error_of(R"({"folder":"/","environment":{},"arguments":[1]})"),
             Contains("arguments are no texts"));
  CHECK_THAT(job_error_of(R"({"folder":"/\u0000","environment":{},"arguments":[]})"),
             Contains("not one of bytes"));
  CHECK_THAT(job_error_of(R"({"folder":"/\u4e2d","environment":{},"arguments":[]})"),
             Contains("not one of bytes"));
  CHECK_THAT(job_error_of(std::string(kMaxNodeJobBytes + 1, ' ')), Contains("no JSON object"));
}

TEST_CASE("node message: signals, and lines that say nothing", "[unit][launcher]") {
  CHECK(decode_node_signal(without_line_feed(encode_node_signal(15))) == 15);
  for (const char* line :
       {"", "signal", "signal 0", "signal 65", "signal x", "signal 9 9", "other"})
    CHECK(!decode_node_signal(line));
}

}  // namespace
}  // namespace muster::testing
