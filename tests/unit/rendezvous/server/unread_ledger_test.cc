#include "rendezvous/server/unread_ledger.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace muster;

namespace {

struct LedgerTest {
  ConnectionShared shared{
      {}, {}, {.queued_total_bytes = 1'000}, RunLimits{.queued_bytes = 100}, C10dDoor({})};
  UnreadLedger ledger{shared};
  std::vector<UnreadEntry> entries = std::vector<UnreadEntry>(3);

  void has_unread(std::uint32_t client, std::size_t bytes, RunAccount* account = nullptr) {
    ledger.update(ConnectionId{client}, entries[client],
                  {.bytes = bytes, .memory = bytes, .account = account});
  }
};

}  // namespace

TEST_CASE_METHOD(LedgerTest, "unread ledger: beyond the limit, the client with the most is named",
                 "[unit][limits]") {
  CHECK_FALSE(ledger.first_beyond_limit());
  has_unread(0, 400);
  has_unread(1, 600);
  CHECK_FALSE(ledger.first_beyond_limit());
  has_unread(2, 1);
  REQUIRE(ledger.first_beyond_limit());
  CHECK(ledger.first_beyond_limit().value() == ConnectionId{1});
  ledger.remove(ConnectionId{1}, entries[1]);
  CHECK_FALSE(ledger.first_beyond_limit());
  CHECK(shared.queued_bytes == 401);
  CHECK(ledger.most_first() == std::vector<ConnectionId>{{0}, {2}});
}

TEST_CASE_METHOD(LedgerTest, "unread ledger: a client that reads its replies is in no list",
                 "[unit][limits]") {
  has_unread(0, 2'000);
  CHECK(ledger.first_beyond_limit());
  has_unread(0, 0);
  CHECK_FALSE(ledger.first_beyond_limit());
  CHECK(ledger.most_first().empty());
  CHECK(shared.queued_bytes == 0);
}

TEST_CASE_METHOD(LedgerTest, "unread ledger: a run beyond its limit is reported once",
                 "[unit][limits]") {
  RunAccount* const job = shared.accounts.enter("job");
  REQUIRE(job != nullptr);
  has_unread(0, 60);  // It belongs to no run yet.
  has_unread(1, 60, job);
  CHECK_FALSE(ledger.take_run_beyond_limit());
  has_unread(0, 61, job);
  CHECK(job->queued == 121);
  CHECK(ledger.take_run_beyond_limit());
  CHECK_FALSE(ledger.take_run_beyond_limit());
  CHECK(ledger.is_of_run_beyond_limit(entries[0]));
  ledger.remove(ConnectionId{0}, entries[0]);
  CHECK(job->queued == 60);
  CHECK_FALSE(ledger.is_of_run_beyond_limit(entries[1]));
}
