// The agents of one round and their store, on one loop.

#include "agent/sessions/round_exchange.h"

#include <optional>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "agent/sessions/store_dialer.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "rendezvous/server/store_server.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

struct RoundExchangeTest {
  asio::io_context loop{1};
  StoreServer server{loop, {.addresses = {"127.0.0.1"}}};

  RoundExchangeTest() { REQUIRE(server.start().has_value()); }

  std::shared_ptr<StoreClient> client() {
    StoreClientOptions options{.host = "127.0.0.1", .port = server.port(), .timeout = 20s};
    auto made = std::make_shared<StoreClient>(loop.get_executor(), std::move(options));
    const auto connected = run(made->connect());
    REQUIRE(connected.has_value());
    return made;
  }
  RoundExchange node(int rank, int nodes, Duration timeout = 20s) {
    RoundExchangeOptions options{.prefix = "torch.rendezvous.r.3",
                                 .group_rank = {rank},
                                 .group_world_size = nodes,
                                 .role = "default",
                                 .local_world_size = rank + 1,
                                 .timeout = timeout};
    return RoundExchange(client(), std::move(options),
                         [this](const std::string& text) { waiting.push_back(text); });
  }
  template <typename T>
  void start(asio::awaitable<T> task, std::optional<T>& result) {
    asio::co_spawn(loop, std::move(task), [&result](const std::exception_ptr& error, T value) {
      CHECK(error == nullptr);
      result = std::move(value);
    });
  }
  template <typename T>
  void until_done(const std::optional<T>& result) {
    const Instant end = now() + 60s;
    while (!result && now() < end)
      loop.run_one_for(1s);
    REQUIRE(result.has_value());
  }
  template <typename T>
  T run(asio::awaitable<T> task) {
    std::optional<T> result;
    start(std::move(task), result);
    until_done(result);
    return std::move(*result);
  }

  std::vector<std::string> waiting;
};

TEST_CASE_METHOD(RoundExchangeTest, "round exchange: ranks, in whatever order nodes come",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 2);
  RoundExchange second = node(1, 2);
  std::optional<ExchangeResult<AssignedRanks>> first_ranks;
  std::optional<ExchangeResult<AssignedRanks>> second_ranks;
  REQUIRE(run(second.publish_role()).has_value());
  start(first.ranks(), first_ranks);
  start(second.ranks(), second_ranks);
  REQUIRE(run(first.publish_role()).has_value());
  until_done(first_ranks);
  until_done(second_ranks);
  REQUIRE((first_ranks->has_value() && second_ranks->has_value()));
  CHECK(**first_ranks == AssignedRanks{{0}, 3, 0, 3});
  CHECK(**second_ranks == AssignedRanks{{1}, 3, 1, 3});
}

TEST_CASE_METHOD(RoundExchangeTest, "round exchange: nodes that differ in --nnodes learn it",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 4);
  RoundExchange other = node(2, 5);
  REQUIRE(run(first.compare_nodes("10.0.0.1")).has_value());
  std::optional<ExchangeResult<AssignedRanks>> first_ranks;
  start(first.ranks(), first_ranks);
  const std::string expected =
      "the nodes differ in --nnodes: node rank 0 (10.0.0.1) was started with --nnodes=4, node rank "
      "2 "
      "(10.0.0.3) was started with --nnodes=5; give all nodes the same";
  CHECK(run(other.compare_nodes("10.0.0.3")).error().reason == expected);
  until_done(first_ranks);
  REQUIRE(first_ranks->has_error());
  CHECK(first_ranks->error().reason == expected);
}

TEST_CASE_METHOD(RoundExchangeTest,
                 "round exchange: a node that is started again may correct its --nnodes",
                 "[conformance][agent]") {
  RoundExchange wrong = node(1, 7);
  RoundExchange right = node(2, 3);
  RoundExchange corrected = node(1, 3);
  REQUIRE(run(wrong.compare_nodes("a")).has_value());
  REQUIRE(run(right.compare_nodes("b")).has_error());
  REQUIRE(run(corrected.compare_nodes("a")).has_value());
  CHECK(run(right.compare_nodes("b")).has_value());
}

TEST_CASE_METHOD(RoundExchangeTest, "round exchange: a wait names a node rank that came twice",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 3, 3s);
  RoundExchange one = node(1, 3);
  RoundExchange again = node(1, 3);
  REQUIRE(run(first.compare_nodes("a")).has_value());
  REQUIRE(run(first.claim_rank("a (pid 7)")).has_value());
  REQUIRE(run(one.claim_rank("b (pid 7)")).has_value());
  REQUIRE(run(one.claim_rank("b (pid 7)")).has_value());  // In its next attempt.
  REQUIRE(run(first.publish_role()).has_value());
  REQUIRE(run(one.publish_role()).has_value());
  CHECK(run(first.ranks()).has_error());
  CHECK(waiting == std::vector<std::string>{"node rank 2"});
  waiting.clear();
  REQUIRE(run(again.claim_rank("c (pid 9)")).has_value());
  CHECK(run(first.ranks()).has_error());
  CHECK(waiting ==
        std::vector<std::string>{
            "node rank 2; but node rank 1 has come twice, from b (pid 7) and from c (pid "
            "9): if both run, give one of them another --node-rank"});
}

TEST_CASE_METHOD(RoundExchangeTest,
                 "round exchange: a wait names the missing nodes and ends in time",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 3, 3s);
  REQUIRE(run(first.publish_role()).has_value());
  const auto ranks = run(first.ranks());
  REQUIRE(ranks.has_error());
  CHECK(ranks.error().reason ==
        "node ranks 1, 2 did not come within 3 s (--rdzv-conf read_timeout): no "
        "torchelastic/role_info");
  CHECK(waiting == std::vector<std::string>{"node ranks 1, 2"});
}

TEST_CASE_METHOD(RoundExchangeTest,
                 "round exchange: invalid data of a peer is an error, not a world",
                 "[conformance][agent]") {
  const auto liar = client();
  run(liar->set("torch.rendezvous.r.3/torchelastic/role_info/1", "[1, 2]"));
  RoundExchange first = node(0, 2);
  REQUIRE(run(first.publish_role()).has_value());
  const auto ranks = run(first.ranks());
  REQUIRE(ranks.has_error());
  CHECK(ranks.error().reason == "role_info of node rank 1: it is not a JSON object");
}

TEST_CASE_METHOD(RoundExchangeTest, "round exchange: the address of this round is used at once",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 2);
  RoundExchange second = node(1, 2);
  std::optional<ExchangeResult<MasterAddress>> found;
  start(second.find_master({.rank0_addr = "head"}), found);
  MasterAddress published{"head", 1234};
  REQUIRE(run(first.publish_master(published)).has_value());
  until_done(found);
  REQUIRE(found->has_value());
  CHECK((*found)->addr == "head");
  CHECK((*found)->port == 1234);
}

TEST_CASE_METHOD(RoundExchangeTest,
                 "round exchange: an address of an earlier round is used if it belongs to rank 0",
                 "[conformance][agent]") {
  const auto torch = client();
  const std::string port = std::to_string(server.port());
  // Round 2 had another rank 0. In round 1 the present node was rank 0, and its store still
  // answers.
  run(torch->set("torch.rendezvous.r.2/MASTER_ADDR", "127.0.0.9"));
  run(torch->set("torch.rendezvous.r.2/MASTER_PORT", "1"));
  run(torch->set("torch.rendezvous.r.1/MASTER_ADDR", "127.0.0.1"));
  run(torch->set("torch.rendezvous.r.1/MASTER_PORT", port));
  RoundExchange second = node(1, 2);
  EarlierRounds earlier{
      .prefixes = {"torch.rendezvous.r.2", "torch.rendezvous.r.1", "torch.rendezvous.r.0"},
      .rank0_addr = "127.0.0.1"};
  const auto found = run(second.find_master(earlier));
  REQUIRE(found.has_value());
  CHECK(found->addr == "127.0.0.1");
  CHECK(found->port == server.port());
}

TEST_CASE_METHOD(
    RoundExchangeTest,
    "round exchange: without MASTER_ADDR the error names rank 0, the limit and its option",
    "[conformance][agent]") {
  RoundExchange second = node(1, 2, 3s);
  const auto found = run(second.find_master({.rank0_addr = "head"}));
  REQUIRE(found.has_error());
  CHECK(found.error().reason ==
        "node rank 0 (head) has not published MASTER_ADDR within 3 s (--rdzv-conf read_timeout)");
}

TEST_CASE_METHOD(RoundExchangeTest,
                 "round exchange: the time limit of a dial does not limit later requests",
                 "[conformance][agent]") {
  StoreDialer dialer(loop.get_executor(), {.host = "127.0.0.1", .port = server.port()});
  const auto late = run(dialer.dial(now() + 200ms));
  REQUIRE(late);
  std::optional<Result<std::string>> value;
  start(late->get("a key that comes after the limit of the dial"), value);
  const Instant begin = now();
  while (now() < begin + 400ms)
    loop.run_one_for(50ms);
  CHECK_FALSE(value.has_value());
  const auto other = client();
  const auto set = run(other->set("a key that comes after the limit of the dial", "v"));
  REQUIRE(set.has_value());
  until_done(value);
  CHECK(value->value() == "v");
}

TEST_CASE_METHOD(RoundExchangeTest, "round exchange: the exit barrier opens with the last node",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 2);
  RoundExchange second = node(1, 2);
  std::optional<ExchangeResult<void>> first_out;
  start(first.exit_barrier(30s), first_out);
  const auto second_out = run(second.exit_barrier(30s));
  until_done(first_out);
  CHECK((first_out->has_value() && second_out.has_value()));
}

TEST_CASE_METHOD(RoundExchangeTest,
                 "round exchange: the exit barrier has a time limit and can be cancelled",
                 "[conformance][agent]") {
  RoundExchange first = node(0, 2);
  const auto late = run(first.exit_barrier(1s));
  REQUIRE(late.has_error());
  CHECK(late.error().reason == "not all 2 nodes came to the exit barrier within 1 s");

  const auto connection = client();
  RoundExchangeOptions options{.prefix = "other", .group_world_size = 2};
  RoundExchange cancelled(connection, std::move(options));
  std::optional<ExchangeResult<void>> out;
  start(cancelled.exit_barrier(300s), out);
  const auto watcher = client();
  run(watcher->get("other/torchelastic/agent/terminal_state/num_members"));
  CHECK(!out.has_value());
  connection->close();
  until_done(out);
  CHECK(out->has_error());
}

}  // namespace
}  // namespace muster
