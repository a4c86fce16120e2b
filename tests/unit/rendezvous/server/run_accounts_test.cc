#include "rendezvous/server/run_accounts.h"

#include <cstddef>

#include <catch2/catch.hpp>

#include "rendezvous/rounds/limits.h"
#include "rendezvous/server/server_limits.h"

using namespace muster;

namespace {

struct Accounts {
  RunAccounts accounts{RunLimits{.connections = 2, .keys = 3, .bytes = 100, .queued_bytes = 10}};

  bool may_store(std::size_t names, std::size_t bytes) {
    return accounts.refusal("job", names, bytes).empty();
  }
};

}  // namespace

TEST_CASE_METHOD(Accounts, "run accounts: each run has its own limit of connections",
                 "[unit][limits]") {
  RunAccount* const first = accounts.enter("job");
  REQUIRE(first != nullptr);
  CHECK(accounts.enter("job") == first);
  CHECK(accounts.enter("job") == nullptr);
  CHECK(accounts.enter("other") != nullptr);
  accounts.leave(*first);
  CHECK(accounts.enter("job") == first);
}

TEST_CASE_METHOD(Accounts, "run accounts: requests beyond a run's limits are refused",
                 "[unit][limits]") {
  CHECK(may_store(3, 100));
  CHECK_FALSE(may_store(4, 0));
  CHECK_FALSE(may_store(0, 101));
  accounts.count_stored("job", 2, 60);
  CHECK(may_store(1, 40));
  CHECK_FALSE(may_store(2, 0));
  CHECK_FALSE(may_store(0, 41));
  CHECK(accounts.refusal("job", 2, 0).find("limit run_keys=3") != std::string::npos);
  CHECK(accounts.refusal("job", 0, 41).find("limit run_bytes=100") != std::string::npos);
  CHECK(accounts.refusal("other", 3, 100).empty());
  accounts.count_stored("job", -1, -30);
  CHECK(may_store(2, 70));
}

TEST_CASE_METHOD(Accounts, "run accounts: requests that store nothing are never refused",
                 "[unit][limits]") {
  accounts.count_stored("job", 9, 900);
  CHECK(may_store(0, 0));
}

TEST_CASE_METHOD(Accounts, "run accounts: a sum never falls below zero", "[unit][limits]") {
  accounts.count_stored("job", 1, 10);
  accounts.count_stored("job", -5, -50);
  accounts.count_stored("job", 3, 100);
  CHECK(accounts.find("job")->names == 3);
  CHECK(accounts.find("job")->bytes == 100);
}

TEST_CASE_METHOD(Accounts, "run accounts: unread replies of all connections of a run count",
                 "[unit][limits]") {
  RunAccount* const job = accounts.enter("job");
  REQUIRE(job != nullptr);
  accounts.count_queued(*job, 0, 10);
  CHECK_FALSE(accounts.has_too_much_queued(*job));
  accounts.count_queued(*job, 0, 1);
  CHECK(accounts.has_too_much_queued(*job));
  accounts.count_queued(*job, 10, 4);
  CHECK_FALSE(accounts.has_too_much_queued(*job));
}

TEST_CASE_METHOD(Accounts, "run accounts: a run that holds nothing is not known",
                 "[unit][limits]") {
  accounts.count_stored("job", 1, 10);
  RunAccount* const job = accounts.enter("job");
  accounts.count_stored("job", -1, -10);
  CHECK(accounts.size() == 1);
  accounts.leave(*job);
  CHECK(accounts.size() == 0);
  accounts.count_stored("job", 1, 10);
  accounts.count_stored("job", -1, -10);
  CHECK(accounts.size() == 0);
}

TEST_CASE_METHOD(Accounts, "run accounts: new limits leave the stored values", "[unit][limits]") {
  accounts.count_stored("job", 3, 50);
  accounts.set_limits({.connections = 1, .keys = 2, .bytes = 40, .queued_bytes = 1});
  CHECK(accounts.find("job")->names == 3);
  CHECK_FALSE(may_store(1, 0));
  CHECK_FALSE(may_store(0, 1));
  CHECK(may_store(0, 0));
}

TEST_CASE("runs: one address leaves a fifth of the runs for the others", "[unit][rendezvous]") {
  CHECK(runs_for_one_peer(1) == 1);
  CHECK(runs_for_one_peer(2) == 1);
  CHECK(runs_for_one_peer(4) == 3);
  CHECK(runs_for_one_peer(50) == 40);
  CHECK(runs_for_one_peer(10'000) == kMaxRunsPerPeer);
}

TEST_CASE("limits: the unread replies of one job", "[unit][rendezvous]") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  CHECK(limits_of_one_job(1).queued_total_bytes == 65 * kMiB);
  CHECK(limits_of_one_job(64).queued_total_bytes == 128 * kMiB);
  CHECK(limits_of_one_job(1'000'000'000).queued_total_bytes ==
        ConnectionLimits{}.queued_total_bytes);
}
