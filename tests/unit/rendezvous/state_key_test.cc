#include "rendezvous/wire/state_key.h"

#include <array>

#include <catch2/catch.hpp>

#include "rendezvous/wire/base64.h"
#include "rendezvous/wire/state_codec.h"
#include "tests/unit/rendezvous/run_service_fixture.h"

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

TEST_CASE("state key: only values that Python's unpickler rejects at once may be stored there",
          "[unit][rendezvous]") {
  for (const char* harmless :
       {"", "!!", "eA==", "eQ==", "=e=A", "non_base64", "not-base64!", "42", "-42", "1"})
    CHECK(cannot_be_pickle(harmless));
  for (const std::string& text :
       {base64_encode("\x80\x04N."), base64_encode("cposix\nsystem\n(S'id'\ntR."),
        base64_encode("(iposix\nsystem\n."), base64_encode("Np4000000000\n."),
        "g!A\nS" + base64_encode("N."), std::string("=g=ASVAAAA"), std::string("g"),
        std::string("!!g")})
    CHECK_FALSE(cannot_be_pickle(text));
}

TEST_CASE("state key: every request that writes is checked", "[unit][rendezvous]") {
  const std::string pickled = base64_encode("\x80\x04N.");
  CHECK(refuse_planted_pickle(set(kKey, pickled)));
  CHECK(refuse_planted_pickle({.query = Query::CompareSet, .key = kKey, .value = pickled}));
  CHECK(refuse_planted_pickle({.query = Query::Append, .key = kKey, .value = pickled}));
  const std::array<std::string_view, 2> keys{"other", kKey};
  const std::array<std::string_view, 2> values{pickled, pickled};
  CHECK(refuse_planted_pickle({.query = Query::MultiSet, .keys = keys, .values = values}));
  CHECK_FALSE(refuse_planted_pickle(set("other", pickled)));
  CHECK_FALSE(refuse_planted_pickle(set(kKey + ".0/MASTER_ADDR", "host")));
  CHECK_FALSE(refuse_planted_pickle(set(kKey, "eA==")));
  CHECK_FALSE(refuse_planted_pickle(set(kKey, kNoStateText)));
  CHECK(refuse_planted_pickle(set(kKey, "g")));  // "ASV…" could be appended.
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
