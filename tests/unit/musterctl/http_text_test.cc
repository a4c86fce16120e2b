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

TEST_CASE("musterctl HTTP text: an answer is split into its parts, or refused",
          "[unit][musterctl]") {
  const std::string head = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n";
  CHECK(parse_answer(head + "hello")->status == 404);
  CHECK(parse_answer(head + "hello, more")->body == "hello");
  CHECK_THAT(parse_answer(head + "hell").error().reason, Catch::Contains("cut off"));
  for (const std::string bytes :
       {"", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 x00 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"})
    CHECK_THAT(parse_answer(bytes).error().reason, Catch::Contains("not musterd"));
}

TEST_CASE("musterctl HTTP text: an answer in pieces is complete at its length",
          "[unit][musterctl]") {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
  for (std::size_t bytes = 0; bytes < head.size(); ++bytes)
    CHECK(answer_bytes(head.substr(0, bytes)) == 0);
  CHECK(answer_bytes(head) == head.size() + 5);
  CHECK(answer_bytes(head + "hello, more") == head.size() + 5);
  CHECK(answer_bytes("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n") > kMaxAnswerBytes);
}

TEST_CASE("musterctl HTTP text: an answer without a length or an end is refused",
          "[unit][musterctl]") {
  const std::string no_length = "HTTP/1.1 200 OK\r\n\r\n";
  CHECK(answer_bytes(no_length + "hello") == no_length.size());
  const std::string endless = "HTTP/1.1 200 OK\r\nX: " + std::string(kMaxHeadBytes, 'x');
  CHECK(answer_bytes(endless) == endless.size());
  CHECK_THAT(parse_answer(endless).error().reason, Catch::Contains("not musterd"));
  CHECK(answer_bytes(endless.substr(0, kMaxHeadBytes)) == 0);
}

TEST_CASE("musterctl HTTP text: only a well-formed nonce of a challenge is taken",
          "[unit][musterctl]") {
  const auto nonce = [](const std::string& field) {
    return parse_answer("HTTP/1.1 401 X\r\nContent-Length: 0\r\n" + field + "\r\n\r\n")->nonce;
  };
  CHECK(nonce("WWW-Authenticate: Muster nonce=\"0af9\"") == "0af9");
  CHECK(nonce("WWW-Authenticate: Muster nonce=\"0af9").empty());
  CHECK(nonce("WWW-Authenticate: Muster nonce=\"0 af\"").empty());
  CHECK(nonce("WWW-Authenticate: Bearer realm=\"x\"").empty());
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
