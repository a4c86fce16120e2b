#include "musterctl/http_text.h"

#include <string>

#include <catch2/catch.hpp>

#include "musterctl/doctor_facts.h"

namespace muster::ctl::testing {

TEST_CASE("musterctl endpoint: host and port, in the spellings that people use",
          "[unit][musterctl]") {
  CHECK(parse_endpoint("host:9400")->text() == "host:9400");
  CHECK(parse_endpoint("http://10.0.0.1:9400/")->host == "10.0.0.1");
  CHECK(parse_endpoint("[::1]:9400")->host == "::1");
  CHECK(parse_endpoint("[::1]:9400")->text() == "[::1]:9400");
  for (const char* text :
       {"", "host", "host:", ":9400", "host:0", "host:70000", "::1:9400", "http://host:9400/runs"})
    CHECK_THAT(parse_endpoint(text).error().reason, Catch::Contains("HOST:PORT"));
  CHECK(parse_endpoint("https://host:9400/")->text() == "host:9400");
}

TEST_CASE("musterctl HTTP text: only a well-formed nonce of a challenge is taken",
          "[unit][musterctl]") {
  CHECK(nonce_of("Muster nonce=\"0af9\"") == "0af9");
  CHECK(nonce_of("Muster nonce=\"0af9").empty());
  CHECK(nonce_of("Muster nonce=\"0 af\"").empty());
  CHECK(nonce_of("Bearer realm=\"x\"").empty());
  CHECK(nonce_of("").empty());
}

TEST_CASE("musterctl HTTP text: a run id of any bytes is encoded", "[unit][musterctl]") {
  CHECK(percent_encoded("job-1_a.b") == "job-1_a.b");
  CHECK(percent_encoded("a/b ?%\xff\n") == "a%2Fb%20%3F%25%FF%0A");
}

TEST_CASE("musterctl doctor: musterd's time is read", "[unit][musterctl]") {
  CHECK(*parse_time("2023-11-14T22:13:20.250Z") == Approx(1'700'000'000.25));
  CHECK_FALSE(parse_time("yesterday").has_value());
}

}  // namespace muster::ctl::testing
