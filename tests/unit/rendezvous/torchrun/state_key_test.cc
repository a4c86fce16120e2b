#include "rendezvous/torchrun/state_key.h"

#include <array>

#include <catch2/catch.hpp>

#include "base/base64.h"
#include "rendezvous/torchrun/state_codec.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster {
namespace {

using testing::kKey;
using testing::RunServiceTest;

/// The same state as from another pickler, which writes no frame.
std::string unframed(const std::string& text) {
  auto bytes = base64_decode(text);
  REQUIRE(bytes.has_value());
  REQUIRE((*bytes)[2] == '\x95');
  return base64_encode(bytes->erase(2, 9));
}

Request set(std::string_view key, std::string_view value) {
  return {.query = Query::Set, .key = key, .value = value};
}

TEST_CASE("state key: keys of a round are not the key of a state", "[unit][rendezvous]") {
  CHECK(is_state_key("/torch.rendezvous.job"));
  CHECK(is_state_key("/torch.rendezvous.job.0"));
  CHECK(is_state_key("/torch.rendezvous.team/job"));
  CHECK(is_state_key("/torch.rendezvous.job.0x/a"));
  CHECK(is_state_key("/torch.rendezvous.job0/a"));
  CHECK_FALSE(is_state_key("/torch.rendezvous.job.0/MASTER_ADDR"));
  CHECK_FALSE(is_state_key("/torch.rendezvous.a/b.17/torchelastic/role_info/0"));
  CHECK_FALSE(is_state_key("job"));
}

TEST_CASE("state key: a value that makes unpickling fail may be stored there",
          "[unit][rendezvous]") {
  for (const char* harmless :
       {"", "!!", "eA==", "eQ==", "=e=A", "non_base64", "not-base64!", "42", "-42", "1", "="})
    CHECK_FALSE(may_be_pickle(harmless));
  for (const char* value :
       {"another state", "dummy_state", "checkpoint", "invalid", "Paris", "Q", "R", "Base", "N",
        "(lost", "host-7", "{\"round\": 3}", "}]", "S'text'\n"})
    CHECK_FALSE(may_be_pickle(base64_encode(value)));
  for (const std::string& text :
       {base64_encode("\x80\x04N."), base64_encode("cposix\nsystem\n(S'id'\ntR."),
        base64_encode("cposix\nsystem\n(S'id'\ntR"), base64_encode("cposix\nsystem"),
        base64_encode("(iposix\nsystem\n."), base64_encode("Np4000000000"), base64_encode("I1\n."),
        base64_encode("\x8c\5posix\x8c\6system\x93"), base64_encode("]N."),
        base64_encode("\x8e" + std::string(7, '\xff') + "\x0f"),
        base64_encode(std::string(5'000, 'N')), base64_encode("I" + std::string(5'000, '9')),
        std::string("Tg==Li4="), std::string("g"), std::string("!!g"), std::string("=g=ASVAAAA"),
        base64_encode("\x80\x04K"), base64_encode("\x80\x04hello"), std::string("T!i\n4=")})
    CHECK(may_be_pickle(text));
}

TEST_CASE("state key: every request that writes is checked", "[unit][rendezvous]") {
  const std::string pickled = base64_encode("\x80\x04N.");
  std::string before;
  const auto refused = [&before](const Request& request) {
    return refuse_planted_pickle(request,
                                 [&before](std::string_view) { return std::string_view(before); })
        .has_value();
  };
  CHECK(refused(set(kKey, pickled)));
  CHECK(refused({.query = Query::CompareSet, .key = kKey, .value = pickled}));
  CHECK(refused({.query = Query::Append, .key = kKey, .value = pickled}));
  const std::array<std::string_view, 2> values{pickled, pickled};
  for (const std::array<std::string_view, 2>& keys :
       {std::array<std::string_view, 2>{"other", kKey}, {kKey, "other"}})
    CHECK(refused({.query = Query::MultiSet, .keys = keys, .values = values}));
  CHECK_FALSE(refused(set("other", pickled)));
  CHECK_FALSE(refused(set(kKey + ".0/MASTER_ADDR", "host")));
  CHECK_FALSE(refused(set(kKey, "eA==")));
  CHECK_FALSE(refused(set(kKey, kNoStateText)));
  // A value that only ends too early: something could be appended later.
  CHECK(refused(set(kKey, base64_encode("checkpoint"))));
  CHECK_FALSE(
      refused({.query = Query::CompareSet, .key = kKey, .value = base64_encode("checkpoint")}));
}

TEST_CASE("state key: a pickle cannot be appended in parts", "[unit][rendezvous]") {
  const auto refused = [](const std::string& before, const std::string& value) {
    const Request append{.query = Query::Append, .key = kKey, .value = value};
    return refuse_planted_pickle(append, [&](std::string_view) { return std::string_view(before); })
        .has_value();
  };
  const std::string pickled = base64_encode("cposix\ngetcwd\n)R.");
  for (std::size_t i = 1; i < pickled.size(); ++i) {
    CHECK(refused("", pickled.substr(0, i)));
    CHECK(refused(pickled.substr(0, i), pickled.substr(i)));
  }
  CHECK(refused(std::string(kNoStateText), base64_encode("\nsystem\n")));
  CHECK(refused(base64_encode("canary"), base64_encode("\nsystem\n")));
  CHECK_FALSE(refused("eA==", pickled));  // Python stops at the first byte.
  CHECK_FALSE(refused(base64_encode("dummy_state"), std::string(100'000, 'T')));
  CHECK(refused(std::string(70'000, '!'), "TU"));  // The beginning that is checked has no value.
}

TEST_CASE_METHOD(RunServiceTest, "runs: a client's own text is returned to that client only",
                 "[unit][rendezvous]") {
  begin(1);
  const std::string plain = joined_by(1, std::string(kNoStateText));
  const std::string own = unframed(plain);
  REQUIRE(own != plain);
  CHECK(text(compare_set(1, kNoStateText, own)) == own);  // The client has won.
  CHECK(begin(2) == plain);
  CHECK(begin(1) == plain);
  // The client wins again with its own text as the expected value. A loser gets the host's text.
  const std::string next = unframed(joined_by(2, plain));
  CHECK(text(compare_set(2, own, next)) == next);
  CHECK(begin(3) == joined_by(2, plain));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a pickle does not replace the state of a new run",
                 "[unit][rendezvous]") {
  begin(1);
  const std::string pickled = base64_encode("\x80\x04N.");
  CHECK(std::holds_alternative<StateRefused>(compare_set(2, kNoStateText, pickled)));
  CHECK(service->has_state(kKey));
  CHECK(std::holds_alternative<NotOfARun>(compare_set(2, kNoStateText, "eA==")));
}

TEST_CASE_METHOD(RunServiceTest, "runs: a value that is no state loses against a state",
                 "[unit][rendezvous]") {
  const std::string value = base64_encode("dummy_state");
  begin(1);
  CHECK(text(compare_set(2, "ZXhwZWN0ZWQ=", value)) == kNoStateText);  // The run stays.
  CHECK(service->has_state(kKey));
  const std::string joined = joined_by(1, std::string(kNoStateText));
  CHECK(text(compare_set(1, kNoStateText, joined)) == joined);
  for (const char* expected : {"", "ZXhwZWN0ZWQ=", "Y2FuaW1hZGFt"})
    CHECK(text(compare_set(2, expected, value)) == joined);
  // It would win at torch's server. A node would read it as the state.
  CHECK(std::holds_alternative<StateRefused>(compare_set(2, joined, value)));
  CHECK(std::holds_alternative<StateRefused>(
      compare_set(2, kNoStateText, base64_encode("\x80\x04}."))));
  CHECK(begin(3) == joined);
}

TEST_CASE_METHOD(RunServiceTest, "runs: a run id that looks like a round's keys is refused",
                 "[unit][rendezvous]") {
  const auto outcome = compare_set(1, "", kNoStateText, "/torch.rendezvous.a.1/b");
  REQUIRE(std::holds_alternative<StateRefused>(outcome));
  CHECK_THAT(std::get<StateRefused>(outcome).reason,
             Catch::Contains("the run id of /torch.rendezvous.a.1/b looks like a round's keys"));
  CHECK(std::holds_alternative<NotOfARun>(
      compare_set(1, "", "host", "/torch.rendezvous.a.1/MASTER_ADDR")));
}

}  // namespace
}  // namespace muster
