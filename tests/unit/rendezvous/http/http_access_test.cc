#include "rendezvous/http/http_access.h"

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/plain_crypto.h"

namespace muster::http::testing {

using muster::testing::PlainCrypto;

struct HttpAccessTest {
  std::shared_ptr<const PlainCrypto> crypto = std::make_shared<PlainCrypto>("secret");
  HttpAccess access{crypto};
  Instant now{};

  bool reads(const std::string& authorization, const std::string& cookie = {}) {
    return access.may_read({.authorization = authorization, .cookie = cookie}, now);
  }
  /// The cookie that a browser sends after it has followed a new link.
  std::string logged_in() {
    const auto field = access.finish_login(access.begin_login(now), now);
    REQUIRE(field);
    return field->substr(0, field->find(';'));
  }
  bool proves(const ProvenRequest& proven, const ProvenRequest& asked) {
    const std::string proof = http_request_proof(*crypto, proven);
    return access.proves(asked, "Muster proof=\"" + proof + "\"");
  }
};

TEST_CASE_METHOD(HttpAccessTest, "http access: without a token every client may read",
                 "[unit][http]") {
  HttpAccess open(nullptr);
  CHECK_FALSE(open.has_token());
  CHECK(open.may_read({}, now));
  CHECK(open.may_read({.authorization = "Bearer x", .cookie = "a=b"}, now));
}

TEST_CASE_METHOD(HttpAccessTest, "http access: only the token's key may read", "[unit][http]") {
  const std::string key = http_read_key(*crypto);
  CHECK(reads("Bearer " + key));
  const PlainCrypto other("another");
  for (const std::string& wrong :
       {std::string(), key, std::string("Bearer"), std::string("Bearer "), "bearer" + key,
        "Basic " + key, "Bearer " + key.substr(1), "Bearer " + key + "0",
        "Bearer " + http_read_key(other)})
    CHECK_FALSE(reads(wrong));
}

TEST_CASE_METHOD(HttpAccessTest, "http access: a link works once, and for a minute",
                 "[unit][http]") {
  const std::string secret = access.begin_login(now);
  CHECK_FALSE(access.finish_login("", now));
  CHECK_FALSE(access.finish_login(secret.substr(1), now));
  const auto field = access.finish_login(secret, now + kLoginWithin - Duration(1));
  REQUIRE(field);
  CHECK_THAT(*field, Catch::EndsWith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"));
  CHECK_FALSE(access.finish_login(secret, now));
  const std::string late = access.begin_login(now);
  CHECK_FALSE(access.finish_login(late, now + kLoginWithin));
}

TEST_CASE_METHOD(HttpAccessTest, "http access: a browser's cookie reads until its session ends",
                 "[unit][http]") {
  const std::string cookie = logged_in();
  CHECK(reads("", cookie));
  CHECK(reads("Bearer wrong", "a=b;c; " + cookie + "; d=e"));
  // Two cookies have the same name: an old one and the current one.
  CHECK(reads("", cookie + "x; " + cookie));
  CHECK_FALSE(reads("", cookie.substr(0, cookie.size() - 1)));
  CHECK_FALSE(reads("", "x" + cookie));
  CHECK_FALSE(reads("", cookie.substr(0, cookie.find('=') + 1)));
  now += kSessionLasts;
  CHECK_FALSE(reads("", cookie));
}

TEST_CASE_METHOD(HttpAccessTest, "http access: beyond the limit the oldest links and sessions end",
                 "[unit][http]") {
  std::vector<std::string> secrets;
  for (std::size_t i = 0; i <= kMaxLogins; ++i)
    secrets.push_back(access.begin_login(now));
  CHECK_FALSE(access.finish_login(secrets.front(), now));
  CHECK(access.finish_login(secrets.back(), now));
  const std::string first = logged_in();
  for (std::size_t i = 0; i < kMaxSessions; ++i)
    logged_in();
  CHECK_FALSE(reads("", first));
}

TEST_CASE_METHOD(HttpAccessTest, "http access: a proof is for one method, target and nonce",
                 "[unit][http]") {
  const ProvenRequest asked{.method = "POST", .target = "/api/v1/runs/a/stop", .nonce = "12"};
  CHECK(proves(asked, asked));
  CHECK_FALSE(proves({.method = "PUT", .target = asked.target, .nonce = "12"}, asked));
  CHECK_FALSE(proves({.method = "POST", .target = "/api/v1/runs/b/stop", .nonce = "12"}, asked));
  CHECK_FALSE(proves({.method = "POST", .target = asked.target, .nonce = "13"}, asked));
  // A connection without a nonce, because no proof was requested.
  CHECK_FALSE(proves({.method = "POST", .target = asked.target}, {"POST", asked.target, ""}));
  const std::string key = http_read_key(*crypto);
  for (const std::string& wrong :
       {std::string(), std::string("Muster proof=\""), "Bearer " + key,
        std::string("Muster proof=\"\""), "Muster proof=\"" + key + "\""})
    CHECK_FALSE(access.proves(asked, wrong));
}

TEST_CASE_METHOD(HttpAccessTest, "http access: every secret is compared in constant time",
                 "[unit][http]") {
  const auto comparisons = [&](auto ask) {
    const int before = crypto->compared;
    ask();
    return crypto->compared - before;
  };
  const std::string cookie = logged_in();
  logged_in();
  CHECK(comparisons([&] { reads("Bearer wrong"); }) == 1);
  // All sessions and links are compared, also those after the right one.
  CHECK(comparisons([&] { reads("", cookie); }) == 2);
  access.begin_login(now);
  const std::string secret = access.begin_login(now);
  access.begin_login(now);
  CHECK(comparisons([&] { access.finish_login(secret, now); }) == 3);
  const ProvenRequest asked{.method = "POST", .target = "/", .nonce = "1"};
  CHECK(comparisons([&] { access.proves(asked, "Muster proof=\"0\""); }) == 1);
}

TEST_CASE_METHOD(HttpAccessTest, "http access: no two nonces, links or cookies are equal",
                 "[unit][http]") {
  CHECK(access.new_nonce() != access.new_nonce());
  CHECK(access.begin_login(now) != access.begin_login(now));
  CHECK(logged_in() != logged_in());
  CHECK(HttpAccess(crypto).finish_login(access.begin_login(now), now) == std::nullopt);
}

TEST_CASE("http challenge: a nonce is found in its field", "[unit][http]") {
  CHECK(http_challenge_nonce(http_challenge("0af")) == "0af");
  for (const char* field : {"", "Bearer realm=\"musterd\"", "Muster nonce=\"12", "Muster nonce="})
    CHECK(http_challenge_nonce(field).empty());
}

}  // namespace muster::http::testing
