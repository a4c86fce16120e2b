// Turns, keep-alives, ranks, settings, temporary places.

#include <catch2/catch.hpp>

#include "base/temporary_places.h"
#include "rendezvous/rounds/liveness.h"
#include "rendezvous/rounds/round_ranks.h"
#include "rendezvous/rounds/settings.h"
#include "rendezvous/torchrun/rendezvous_turns.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using Clients = std::vector<ConnectionId>;

TEST_CASE("turns: a held client is answered at its turn, and then wins", "[unit][rendezvous]") {
  CompareSetTurns turns;
  const ConnectionId a{1}, b{2}, c{3};
  const Instant now{};
  REQUIRE(turns.may_try(a));
  turns.tried(a, false, now);  // No other client waits: a has its turn at once.
  CHECK(turns.take_released() == Clients{a});
  CHECK(turns.may_try(a));
  CHECK_FALSE(turns.may_try(b));
  turns.hold(b, now);
  turns.hold(c, now);
  CHECK(turns.take_released().empty());
  turns.tried(a, true, now);
  CHECK(turns.take_released() == Clients{b});
}

TEST_CASE("turns: an unused turn goes to the next client, and a dead client's at once",
          "[unit][rendezvous]") {
  CompareSetTurns turns;
  const ConnectionId a{1}, b{2}, c{3};
  Instant now{};
  turns.tried(a, false, now);
  turns.hold(b, now);
  turns.hold(c, now);
  turns.take_released();
  CHECK(turns.next_deadline() == now + 50ms);
  turns.time_passed(now += 50ms);
  CHECK(turns.take_released() == Clients{b});
  turns.give_up(c, now);
  turns.give_up(b, now);
  CHECK(turns.held() == 0);
  CHECK(turns.may_try(a));
  CHECK_FALSE(turns.next_deadline());
}

TEST_CASE("turns: the time and the number of held clients are limited", "[unit][rendezvous]") {
  CompareSetTurns turns({.turn = 1s, .hold = 2s, .held = 3});
  Instant now{};
  turns.tried({0}, false, now);
  for (std::uint32_t id = 1; id <= 3; ++id)
    turns.hold({id}, now);
  CHECK(turns.take_released() == Clients{{0}});
  turns.hold({4}, now);
  CHECK(turns.take_released() == Clients{{1}});
  turns.time_passed(now += 2s);
  CHECK(turns.take_released() == Clients{{2}, {3}, {4}});
}

TEST_CASE("liveness: on time, late, lost", "[unit][rendezvous]") {
  using Standing = Liveness::Standing;
  Liveness liveness;
  Instant now{};
  liveness.seen(1, now, 4s);
  liveness.seen(2, now, 10s);
  CHECK(liveness.standing(1, now + 1s) == Standing::OnTime);
  CHECK(liveness.standing(1, now + 2s) == Standing::Late);
  CHECK(liveness.next_deadline() == now + 4s);
  liveness.seen(1, now + 3s, 4s);
  CHECK(liveness.take_lost(now + 6s).empty());
  CHECK(liveness.take_lost(now + 7s) == std::vector<Liveness::Id>{1});
  CHECK(liveness.standing(1, now + 7s) == Standing::Unknown);
  liveness.remove(2);
  CHECK_FALSE(liveness.next_deadline());
}

std::vector<std::size_t> ranks(std::vector<RankCandidate> nodes) {
  return assign_group_ranks(nodes);
}
RankCandidate node(std::string addr, bool native, std::optional<int> last = {}) {
  return {.name = {std::move(addr), 0, 0}, .native = native, .last_rank = last};
}

TEST_CASE("ranks: torchrun nodes alone are numbered as torchrun does", "[unit][rendezvous]") {
  CHECK(ranks({node("node2", false), node("node10", false), node("10.0.0.7", false)}) ==
        std::vector<std::size_t>{2, 1, 0});
}

TEST_CASE("ranks: nodes keep their ranks, and a new rank 0 is a muster node if there is one",
          "[unit][rendezvous]") {
  CHECK(ranks({node("a", false), node("b", true, 0), node("c", false, 2)}) ==
        std::vector<std::size_t>{1, 0, 2});
  CHECK(ranks({node("a", false), node("b", false, 1), node("z", true)}) ==
        std::vector<std::size_t>{2, 1, 0});
  CHECK(ranks({node("a", true, 7), node("b", true, 0)}) == std::vector<std::size_t>{1, 0});
}

TEST_CASE("ranks: of workers, also within their roles", "[unit][rendezvous]") {
  const auto workers = assign_worker_ranks({{"trainer", 2}, {"reader", 1}, {"trainer", 3}});
  CHECK(workers[2] == WorkerRanks{{3}, 6, 2, 5});
  CHECK(workers[1] == WorkerRanks{{2}, 6, 0, 1});
}

TEST_CASE("settings: torchrun's defaults", "[unit][rendezvous]") {
  const auto settings = make_settings({"job", 1, 4, 3}, {});
  REQUIRE(settings.has_value());
  CHECK(settings->run.join_timeout == 600s);
  CHECK(settings->run.last_call_timeout == 30s);
  CHECK(settings->close_timeout == 30s);
  CHECK(settings->heartbeat_timeout == std::nullopt);
  CHECK(settings->dead_after() == 15s);
  CHECK(settings->read_timeout == 60s);
  CHECK(settings->timeout == 900s);
  CHECK_FALSE(settings->is_host);
  CHECK(settings->lease == 5s);
  CHECK(settings->cas_backoff == 0s);
}

TEST_CASE("settings: values as Python reads them", "[unit][rendezvous]") {
  const auto settings = make_settings({"job", 1, 1, 0}, {{"join_timeout", " +1_0 "},
                                                         {"is_host", "YES"},
                                                         {"store_type", " File "},
                                                         {"scale_policy", "at-restart"},
                                                         {"keep_alive_max_attempt", "4"}});
  REQUIRE(settings.has_value());
  CHECK(settings->run.join_timeout == 10s);
  CHECK(settings->is_host == true);
  CHECK(settings->store_type == RendezvousSettings::StoreType::File);
  CHECK(settings->run.scale_policy == ScalePolicy::AtRestart);
  CHECK(settings->dead_after() == 20s);
}

TEST_CASE("settings: an older muster agrees to every --on-notice", "[unit][rendezvous]") {
  RunSettings here{.min_nodes = 2, .max_nodes = 4};
  RunSettings there = here;
  for (const auto policy : {OnNotice::Auto, OnNotice::Stop, OnNotice::Shrink}) {
    there.on_notice = policy;
    CHECK(agree(here, there));
    CHECK(agree(there, here));
  }
  here.on_notice = OnNotice::Stop;
  CHECK_FALSE(agree(here, there));
  CHECK(difference(here, there).here == "--on-notice=stop");
  CHECK(difference(here, there).there == "--on-notice=shrink");
  there.on_notice.reset();
  there.max_restarts = 1;
  CHECK_FALSE(agree(here, there));
  CHECK(difference(here, there).here == "--max-restarts=0");
}

TEST_CASE("settings: cas_backoff_max_seconds is a finite number", "[unit][rendezvous]") {
  const auto backoff = [](const std::string& value) {
    const auto settings = make_settings({"job", 1, 4, 0}, {{"cas_backoff_max_seconds", value}});
    return settings ? std::optional(settings->cas_backoff) : std::nullopt;
  };
  CHECK(backoff("0.25") == 250ms);
  CHECK(backoff(" 1_0e-1 ") == 1s);
  CHECK(backoff("0") == 0s);
  CHECK(backoff("-0.0") == 0s);
  CHECK(backoff("1e300") > 876'000h);
  for (const char* bad : {"-0.1", "nan", "inf", "-inf", "1e999", "a", ""})
    CHECK_FALSE(backoff(bad));
}

TEST_CASE("settings: a timeout beyond the clock is as long as the clock allows",
          "[unit][rendezvous]") {
  const auto settings = make_settings({"job", 1, 1, 0}, {{"join_timeout", "86399999999999"}});
  REQUIRE(settings.has_value());
  CHECK(settings->run.join_timeout > 876'000h);  // 100 years.
  CHECK(Instant{} + settings->run.join_timeout + 876'000h > Instant{});
}

TEST_CASE("temporary places: the variables in the order of Python's tempfile, then /tmp",
          "[unit][rendezvous]") {
  std::map<std::string, std::string> variables{{"TMPDIR", "/a"}, {"TEMP", "/b"}, {"TMP", "/c"}};
  const auto places = [&] {
    return temporary_places([&](const char* name) { return variables[name]; });
  };
  CHECK(places() == std::vector<std::string>{"/a", "/b", "/c", "/tmp", "/var/tmp", "/usr/tmp"});
  variables["TMPDIR"].clear();
  variables.erase("TEMP");
  CHECK(places() == std::vector<std::string>{"/c", "/tmp", "/var/tmp", "/usr/tmp"});
}

TEST_CASE("settings: an error names the wrong value", "[unit][rendezvous]") {
  const auto reason = [](std::map<std::string, std::string> conf) {
    const auto settings = make_settings({"job", 1, 1, 0}, conf);
    return settings ? std::string() : settings.error().reason;
  };
  CHECK(reason({{"heartbeat", "5"}})
            .starts_with("--rdzv-conf: unknown key \"heartbeat\"; known are "
                         "cas_backoff_max_seconds, close_timeout, heartbeat_timeout,"));
  for (const char* bad : {"0", "-1", "1.5", "", "1__0", "_1", "x", "99999999999999999999"})
    CHECK(reason({{"join_timeout", bad}}) == "--rdzv-conf join_timeout=" + std::string(bad) +
                                                 ": must be a whole number of seconds above 0");
  CHECK(reason({{"is_host", "maybe"}}) == "--rdzv-conf is_host=maybe: must be true or false");
  CHECK(reason({{"store_type", "etcd"}}) == "--rdzv-conf store_type=etcd: must be tcp or file");
  CHECK_FALSE(make_settings({"", 1, 1, 0}, {}).has_value());
  CHECK_FALSE(make_settings({"job", 0, 1, 0}, {}).has_value());
  CHECK_FALSE(make_settings({"job", 2, 1, 0}, {}).has_value());
}

}  // namespace
}  // namespace muster
