#include "rendezvous/host/run_keys.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "rendezvous/store/store_table.h"
#include "rendezvous/torchrun/state_key.h"
#include "tests/unit/rendezvous/host/run_service_fixture.h"

namespace muster::testing {
namespace {

TEST_CASE("run keys: a state and the keys of its rounds are of one run", "[unit][rendezvous]") {
  for (const char* key : {"/torch.rendezvous.job", "/torch.rendezvous.job.0/MASTER_ADDR",
                          "/torch.rendezvous.job.12//torchelastic/agent/terminal_state/last_member",
                          "/torch.rendezvous.job.0/x.1/y"}) {
    INFO(key);
    CHECK(run_of_key(key) == "/torch.rendezvous.job");
  }
  // The key of a state: its run id may look like RUN.ROUND.
  CHECK(run_of_key("/torch.rendezvous.job.0") == "/torch.rendezvous.job.0");
  CHECK(run_of_key("/torch.rendezvous.job.0.7/x") == "/torch.rendezvous.job.0");
  CHECK(run_of_key("/torch.rendezvous.job0/x") == "/torch.rendezvous.job0/x");
  CHECK(run_of_key("/torch.rendezvous.a/b.3/x") == "/torch.rendezvous.a/b");
  CHECK(run_of_key("/torch.rendezvous..5/x") == "/torch.rendezvous..5/x");
}

TEST_CASE("run keys: the table lists the keys of one run", "[unit][rendezvous]") {
  StoreTable table(StoreLimits{});
  const std::string run = "/torch.rendezvous.job";
  const auto set = [&table](const std::string& key) {
    table.apply({}, {.query = Query::Set, .key = key, .value = "1"});
  };
  for (const char* key : {".1/x", ".0/y", ".0", "2.0/z", ".b.0/z"})
    set(run + key);
  set("/of/no/run");
  const std::string queue = run + ".0/queue";
  table.apply({}, {.query = Query::QueuePush, .key = queue, .value = "1"});
  const std::string waited = run + ".0/waited";
  const std::vector<std::string_view> names = {waited};
  table.apply(ConnectionId{1}, {.query = Query::Wait, .keys = names});
  const auto keys = table.keys_below(run, [&](auto key) { return run_of_key(key) == run; });
  CHECK(std::vector<std::string>(keys.each.begin(), keys.each.end()) ==
        std::vector<std::string>{run + ".0/y", run + ".1/x"});
}

TEST_CASE("run keys: other keys belong to no run", "[unit][rendezvous]") {
  for (const char* key : {"", "/", "/worker/0", "torch.rendezvous.job", "/torch.rendezvous."})
    CHECK(run_of_key(key).empty());
}

TEST_CASE("run keys: a run's own key is a key of a state", "[unit][rendezvous]") {
  for (const char* key : {"/torch.rendezvous.job", "/torch.rendezvous.job.0/x",
                          "/torch.rendezvous.a/b.3/x", "/torch.rendezvous.job.0.7/x"})
    CHECK(is_state_key(run_of_key(key)));
}

TEST_CASE_METHOD(RunServiceTest, "runs: no node begins a run whose state is a key of another run",
                 "[unit][rendezvous]") {
  hello(1, "victim");
  for (const char* run_id :
       {"victim.0/MASTER_ADDR", "victim.12//torchelastic/agent/terminal_state/last_member",
        "other.7/x", "a/b.3/c.d"}) {
    INFO(run_id);
    const auto answer = tell(2, NativeHello{kNativeProtocolVersion, "9.9", run_id});
    REQUIRE(std::holds_alternative<NativeRefused>(*answer.reply));
    CHECK_THAT(std::get<NativeRefused>(*answer.reply).text,
               Catch::Contains("looks like a key of a round"));
    CHECK_THAT(answer.close, Catch::Contains(run_id));
    CHECK_FALSE(service->has_state(std::string(kStateKeyPrefix) + run_id));
  }
  hello(3, "victim.0");
  hello(4, "a/b.c/1.d");
}

}  // namespace
}  // namespace muster::testing
