#include "rendezvous/server/client_runs.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

using namespace muster;

namespace {

using Address = boost::asio::ip::address;

struct ClientRunsTest {
  const Address address = boost::asio::ip::make_address("192.0.2.7");
  const std::string job = std::string(kStateKeyPrefix) + "job";
  const std::string other = std::string(kStateKeyPrefix) + "other";
  ConnectionShared shared{
      {}, {}, {}, RunLimits{.connections = 1}, C10dDoor(*parse_c10d_allow("members"))};
  ClientSocket socket{OwnedFd(), {address, 4000}};
  std::unique_ptr<ClientRuns> runs = std::make_unique<ClientRuns>(shared, ConnectionId{0}, socket);

  void wait_for_a_key_of(const std::string& run) {
    const std::string key = run + ".1/rank";
    const std::array<std::string_view, 1> keys{key};
    runs->wait_for(run);
    shared.apply(ConnectionId{0}, {.query = Query::Wait, .keys = keys});
  }
};

}  // namespace

TEST_CASE_METHOD(ClientRunsTest, "client runs: a client belongs to the first run that has room",
                 "[unit][limits]") {
  CHECK(runs->account() == nullptr);
  REQUIRE(runs->enter(job));
  const RunAccount* const account = runs->account();
  CHECK(runs->enter(other));
  CHECK(runs->account() == account);
  ClientRuns second(shared, ConnectionId{1}, socket);
  CHECK_FALSE(second.enter(job));
  CHECK(second.account() == nullptr);
  runs.reset();
  CHECK(second.enter(job));
}

TEST_CASE_METHOD(ClientRunsTest,
                 "client runs: a member's address may use its run's keys until it leaves",
                 "[unit][limits]") {
  NativeHello hello;
  hello.run_id = "job";
  CHECK_FALSE(shared.c10d.admits_to_run(address, job));
  runs->become_member(hello);
  CHECK(runs->member_of() == job);
  CHECK(shared.c10d.admits_to_run(address, job));
  hello.run_id = "other";
  runs->become_member(hello);  // Only the first call has an effect.
  CHECK(runs->member_of() == job);
  CHECK_FALSE(shared.c10d.admits_to_run(address, other));
  runs->leave();
  CHECK_FALSE(runs->is_member());
  CHECK_FALSE(shared.c10d.admits_to_run(address, job));
}

TEST_CASE_METHOD(ClientRunsTest, "client runs: a wait counts in its run's account until it ends",
                 "[unit][limits]") {
  wait_for_a_key_of(job);
  REQUIRE(shared.accounts.find(job) != nullptr);
  CHECK(shared.accounts.find(job)->names == 1);
  wait_for_a_key_of(other);  // The wait for the first run's key has ended.
  CHECK(shared.accounts.find(job) == nullptr);
  REQUIRE(shared.accounts.find(other) != nullptr);
  runs->abandon_wait();
  CHECK_FALSE(shared.table.is_waiting(ConnectionId{0}));
  runs.reset();
  CHECK(shared.accounts.find(other) == nullptr);
  CHECK(shared.table.num_names() == 0);
}
