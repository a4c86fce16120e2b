#include "rendezvous/store/store_table.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace muster {
namespace {

struct StoreTableTest {
  StoreTable table{StoreLimits{.keys = 1000, .bytes = 1 << 20}};

  Reply ask(std::uint32_t who, const Request& request) {
    return table.apply(ConnectionId{who}, request);
  }
  Reply set(std::string_view key, std::string_view value) {
    return ask(99, {.query = Query::Set, .key = key, .value = value});
  }
  std::string get(std::string_view key) {
    return std::string(std::get<Value>(ask(99, {.query = Query::Get, .key = key})).bytes.view());
  }
  Reply add(std::string_view key, std::int64_t delta) {
    return ask(99, {.query = Query::Add, .key = key, .number = delta});
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) {
    const Reply reply =
        ask(99, {.query = Query::CompareSet, .key = key, .value = desired, .expected = expected});
    return std::string(std::get<Value>(reply).bytes.view());
  }
  /// Waits for the keys. Returns whether the answer comes at once.
  bool wait(std::uint32_t who, std::vector<std::string_view> keys) {
    const Reply reply = ask(who, {.query = Query::Wait, .keys = keys});
    return std::holds_alternative<Flag>(reply);
  }
  bool check(std::vector<std::string_view> keys) {
    return std::get<Flag>(ask(99, {.query = Query::Check, .keys = keys})).value == kReady.value;
  }
  void push(std::string_view name, std::string_view value) {
    ask(99, {.query = Query::QueuePush, .key = name, .value = value});
  }
  Popped pop(std::string_view name) {
    return std::get<Popped>(ask(99, {.query = Query::QueuePop, .key = name}));
  }
  bool barrier(std::uint32_t who, std::string_view key, std::int64_t world_size) {
    const Reply reply = ask(who, {.query = Query::Barrier, .key = key, .number = world_size});
    return std::holds_alternative<Flag>(reply);
  }
  std::vector<std::uint32_t> released() const {
    std::vector<std::uint32_t> ids;
    for (const ConnectionId id : table.released())
      ids.push_back(id.value);
    return ids;
  }
  using Ids = std::vector<std::uint32_t>;
};

bool refused(const Reply& reply, Refusal why) {
  const auto* refusal = std::get_if<Refusal>(&reply);
  return refusal != nullptr && *refusal == why;
}

std::int64_t number(const Reply& reply) {
  return std::get<Number>(reply).value;
}

#define STORE_TEST(name) TEST_CASE_METHOD(StoreTableTest, "store table: " name, "[unit][store]")

STORE_TEST("a key has the value that was set last") {
  set("a", "1");
  set("a", "22");
  CHECK(get("a") == "22");
  CHECK(get("missing").empty());
  CHECK(table.num_keys() == 1);
}

STORE_TEST("a value that somebody still reads does not change under them") {
  set("a", "old");
  const Value before = std::get<Value>(ask(1, {.query = Query::Get, .key = "a"}));
  set("a", "new");
  ask(1, {.query = Query::Append, .key = "a", .value = "er"});
  CHECK(before.bytes.view() == "old");
  CHECK(get("a") == "newer");
}

STORE_TEST("ADD counts from nothing, stores decimals, wraps around") {
  CHECK(number(add("n", 5)) == 5);
  CHECK(number(add("n", -12)) == -7);
  CHECK(get("n") == "-7");
  CHECK(number(add("zero", 0)) == 0);
  CHECK(get("zero") == "0");
  const auto max = std::numeric_limits<std::int64_t>::max();
  add("big", max);
  CHECK(number(add("big", 1)) == std::numeric_limits<std::int64_t>::min());
}

STORE_TEST("ADD and BARRIER on what is no number are refused and change nothing") {
  set("t", "text");
  CHECK(refused(add("t", 1), Refusal::NotANumber));
  CHECK(refused(ask(1, {.query = Query::Barrier, .key = "t", .number = 2}), Refusal::NotANumber));
  CHECK(get("t") == "text");
}

TEST_CASE("store table: stored numbers are read as std::stoll reads them", "[unit][store]") {
  using namespace std::string_view_literals;
  CHECK(parse_stored_number("12abc") == 12);
  CHECK(parse_stored_number(" \t\n\v\f\r+7") == 7);
  CHECK(parse_stored_number("0x10") == 0);
  CHECK(parse_stored_number("1e3") == 1);
  CHECK(parse_stored_number("1\0002"sv) == 1);
  CHECK(parse_stored_number("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
  for (const auto* text : {"", " ", "+", "-", "+-1", "-+1", "x1", "9223372036854775808"})
    CHECK_FALSE(parse_stored_number(text));
}

STORE_TEST("COMPARE_SET follows torch's table, the expected value of a missing key included") {
  CHECK(compare_set("c", "", "first") == "first");
  CHECK(compare_set("c", "first", "second") == "second");
  CHECK(compare_set("c", "first", "third") == "second");
  CHECK(compare_set("c", "", "x") == "second");
  CHECK(compare_set("m", "expected", "new") == "expected");
  CHECK_FALSE(check({"m"}));
  CHECK(compare_set("z", "", "").empty());
  CHECK(check({"z"}));
  CHECK(compare_set("z", "", "filled") == "filled");
}

STORE_TEST("a COMPARE_SET releases waiters only if it has written") {
  CHECK_FALSE(wait(1, {"k"}));
  compare_set("k", "expected", "new");
  CHECK(released().empty());
  compare_set("k", "", "new");
  CHECK(released() == Ids{1});
}

STORE_TEST("every kind of write releases all waiters of the key, in the order of their arrival") {
  const auto waiting = [this] {
    for (const std::uint32_t who : {3U, 1U, 2U})
      REQUIRE_FALSE(wait(who, {"k"}));
  };
  const Ids order{3, 1, 2};
  const std::vector<std::string_view> keys{"k"}, values{"v"};
  waiting();
  set("other", "1");
  CHECK(released().empty());
  set("k", "");  // An empty value is a value.
  CHECK(released() == order);
  for (const Request& write : {Request{.query = Query::Append, .key = "k", .value = "1"},
                               Request{.query = Query::Add, .key = "k", .number = 1},
                               Request{.query = Query::MultiSet, .keys = keys, .values = values}}) {
    ask(99, {.query = Query::DeleteKey, .key = "k"});
    waiting();
    ask(99, write);
    CHECK(released() == order);
    CHECK(table.waiting() == 0);
  }
}

STORE_TEST("a wait for several keys ends with the last one; what came may go again") {
  CHECK_FALSE(wait(1, {"a", "b", "b"}));
  set("a", "1");
  set("a", "2");
  CHECK(released().empty());
  CHECK(number(ask(99, {.query = Query::DeleteKey, .key = "a"})) == 1);
  set("b", "1");
  CHECK(released() == Ids{1});
}

STORE_TEST("a wait for what is there, or for nothing, ends at once") {
  set("a", "1");
  push("q", "1");
  CHECK(wait(1, {"a", "q"}));
  CHECK(wait(1, {}));
  CHECK(table.waiting() == 0);
}

STORE_TEST("a cancelled wait leaves nothing behind") {
  const std::size_t before = table.bytes();
  CHECK_FALSE(wait(1, {"a", "b"}));
  CHECK(table.bytes() > before);
  CHECK(std::get<Flag>(ask(1, {.query = Query::CancelWait})).value == kWaitCanceled.value);
  CHECK(table.bytes() == before);
  set("a", "1");
  set("b", "1");
  CHECK(released().empty());
  CHECK(std::get<Flag>(ask(1, {.query = Query::CancelWait})).value == kWaitCanceled.value);
}

STORE_TEST("a client that leaves while it waits is on no list any more") {
  CHECK_FALSE(wait(1, {"a"}));
  CHECK_FALSE(wait(2, {"a"}));
  table.disconnect(ConnectionId{1});
  CHECK_FALSE(wait(1, {"b"}));  // Another client with the same number.
  set("a", "1");
  CHECK(released() == Ids{2});
  CHECK(table.is_waiting(ConnectionId{1}));
}

STORE_TEST("a client that was abandoned is released no more, and its wait can be ended later") {
  std::vector<std::string> names;
  for (int i = 0; i < 200; ++i)
    names.push_back("k" + std::to_string(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const std::size_t before = table.bytes();
  for (const std::uint32_t who : {1, 2})
    CHECK_FALSE(wait(who, keys));
  table.abandon(ConnectionId{1});
  table.abandon(ConnectionId{1});
  CHECK_FALSE(table.is_waiting(ConnectionId{1}));
  CHECK(table.waiting() == 1);
  CHECK(table.wait_size(ConnectionId{1}) == names.size());
  for (const std::string& name : names)
    push(name, "v");  // The last one releases a client: the older one is gone.
  CHECK(released() == Ids{2});
  for (const std::string& name : names)
    pop(name);
  CHECK_FALSE(wait(2, keys));
  for (const std::string& name : names)
    set(name, "1");
  CHECK(released() == Ids{2});
  CHECK(table.waiting() == 0);
  for (const std::string& name : names)
    ask(99, {.query = Query::DeleteKey, .key = name});
  table.disconnect(ConnectionId{1});
  CHECK(table.wait_size(ConnectionId{1}) == 0);
  CHECK(table.bytes() == before);
  CHECK_FALSE(wait(1, {"a"}));  // Another client with the same number.
  set("a", "1");
  CHECK(released() == Ids{1});
}

STORE_TEST("the keys below a prefix are deleted as by DELETE_KEY") {
  for (const char* key : {"a", "a.1", "a.2", "a.3", "b"})
    set(key, "v");
  push("a.queue", "v");
  CHECK_FALSE(wait(1, {"a.0"}));
  table.delete_below("a.", [](std::string_view key) { return key != "a.2"; });
  CHECK(table.num_keys() == 3);
  CHECK(check({"a", "a.2", "b", "a.queue"}));
  CHECK_FALSE(table.has("a.1"));
  CHECK_FALSE(table.has("a.3"));
  CHECK(table.is_waiting(ConnectionId{1}));
}

STORE_TEST("a second WAIT takes the first one's place") {
  CHECK_FALSE(wait(1, {"a"}));
  CHECK_FALSE(wait(1, {"b"}));
  set("a", "1");
  CHECK(released().empty());
  set("b", "1");
  CHECK(released() == Ids{1});
}

STORE_TEST("queues and keys of one name live side by side") {
  push("x", "queued");
  CHECK(table.num_keys() == 0);
  CHECK(check({"x"}));
  CHECK(number(ask(1, {.query = Query::DeleteKey, .key = "x"})) == 0);
  set("x", "key");
  CHECK(get("x") == "key");
  const Popped popped = pop("x");
  CHECK(popped.length_before == 1);
  CHECK(popped.bytes.view() == "queued");
  CHECK(pop("x").length_before == 0);
  CHECK(number(ask(1, {.query = Query::QueueLen, .key = "x"})) == 0);
  CHECK(get("x") == "key");
}

STORE_TEST("one push releases one waiter, the oldest that misses nothing else") {
  CHECK_FALSE(wait(1, {"q", "other"}));
  CHECK_FALSE(wait(2, {"q"}));
  CHECK_FALSE(wait(3, {"q"}));
  push("q", "a");
  CHECK(released() == Ids{2});
  push("q", "b");
  CHECK(released() == Ids{3});
  set("other", "1");  // The queue is still filled, so no name is missing any more.
  CHECK(released() == Ids{1});
}

STORE_TEST("a queue that was emptied again counts as missing") {
  CHECK_FALSE(wait(1, {"q", "other"}));
  push("q", "a");
  pop("q");
  set("other", "1");
  CHECK(released().empty());
  push("q", "b");
  CHECK(released() == Ids{1});
}

STORE_TEST("a wait for two queues, or twice for the same, ends with the push that fills the last") {
  CHECK_FALSE(wait(1, {"q", "r"}));
  push("q", "1");
  CHECK(released().empty());
  push("r", "1");
  CHECK(released() == Ids{1});
  pop("q");
  CHECK_FALSE(wait(2, {"q", "q"}));
  push("q", "1");
  CHECK(released() == Ids{2});
}

STORE_TEST("a wait for two queues ends even if the first one's push went to somebody else") {
  CHECK_FALSE(wait(2, {"q"}));
  CHECK_FALSE(wait(1, {"q", "r"}));
  push("q", "1");
  CHECK(released() == Ids{2});
  push("r", "1");
  CHECK(released() == Ids{1});
}

STORE_TEST("a client released from a queue absorbs no later push") {
  CHECK_FALSE(wait(1, {"q"}));
  push("q", "1");
  pop("q");
  CHECK_FALSE(wait(1, {"unrelated"}));
  CHECK_FALSE(wait(2, {"q"}));
  push("q", "2");
  CHECK(released() == Ids{2});
}

STORE_TEST("a barrier opens with the last arrival and stays open") {
  CHECK_FALSE(barrier(1, "b", 3));
  CHECK_FALSE(barrier(2, "b", 3));
  CHECK(released().empty());
  CHECK(barrier(3, "b", 3));
  CHECK(released() == Ids{1, 2});
  CHECK(barrier(1, "b", 3));
  CHECK(get("b") == "4");
  CHECK(barrier(1, "zero", 0));
  CHECK(barrier(1, "negative", -5));
}

STORE_TEST("an arrival whose client gave up stays counted") {
  CHECK_FALSE(barrier(1, "b", 2));
  ask(1, {.query = Query::CancelWait});
  CHECK(barrier(2, "b", 2));
  CHECK(released().empty());
}

STORE_TEST("a SET on the barrier's key releases those who wait at it") {
  CHECK_FALSE(barrier(1, "b", 5));
  set("b", "1");
  CHECK(released() == Ids{1});
}

STORE_TEST("MULTI_SET sets in order, MULTI_GET answers in order, missing ones empty") {
  const std::vector<std::string_view> keys{"a", "b", "a"}, values{"first", "", "last"};
  ask(1, {.query = Query::MultiSet, .keys = keys, .values = values});
  const std::vector<std::string_view> wanted{"b", "missing", "a", "a"};
  const auto got = std::get<Values>(ask(1, {.query = Query::MultiGet, .keys = wanted}));
  REQUIRE(got.each.size() == 4);
  CHECK(got.each[0].view().empty());
  CHECK(got.each[1].view().empty());
  CHECK(got.each[2].view() == "last");
  CHECK(got.each[3].view() == "last");
}

STORE_TEST("LIST_KEYS lists what GETNUMKEYS counts: no queue, no name that is only waited for") {
  set("b", "1");
  set("a", "1");
  push("q", "1");
  CHECK_FALSE(wait(1, {"w"}));
  const auto keys = std::get<Keys>(ask(2, {.query = Query::ListKeys}));
  CHECK(keys.each == std::vector<std::string_view>{"a", "b"});
  CHECK(number(ask(2, {.query = Query::GetNumKeys})) == 2);
}

STORE_TEST("clear() forgets keys, queues and waits") {
  set("a", "1");
  push("q", "1");
  CHECK_FALSE(wait(1, {"w"}));
  table.clear();
  CHECK(table.bytes() == 0);
  CHECK_FALSE(check({"a"}));
  set("w", "1");
  CHECK(released().empty());
}

struct FullTableTest : StoreTableTest {
  void limit(StoreLimits limits) {
    table.~StoreTable();
    new (&table) StoreTable(limits);
  }
};

TEST_CASE_METHOD(FullTableTest, "store table: the limit of keys is exact", "[unit][store]") {
  limit({.keys = 2, .bytes = 1 << 20});
  set("a", "1");
  push("q", "1");
  CHECK(refused(set("c", "1"), Refusal::TooManyKeys));
  CHECK(refused(add("c", 1), Refusal::TooManyKeys));
  CHECK(refused(ask(1, {.query = Query::Append, .key = "c", .value = "1"}), Refusal::TooManyKeys));
  CHECK(refused(ask(1, {.query = Query::QueuePush, .key = "c"}), Refusal::TooManyKeys));
  CHECK(refused(ask(1, {.query = Query::Barrier, .key = "c", .number = 2}), Refusal::TooManyKeys));
  CHECK(refused(ask(1, {.query = Query::CompareSet, .key = "c", .value = "1"}),
                Refusal::TooManyKeys));
  const std::vector<std::string_view> keys{"a", "c"}, values{"9", "9"};
  CHECK(refused(ask(1, {.query = Query::Wait, .keys = keys}), Refusal::TooManyKeys));
  CHECK(refused(ask(1, {.query = Query::MultiSet, .keys = keys, .values = values}),
                Refusal::TooManyKeys));
  CHECK(get("a") == "1");  // All or nothing.
  CHECK_FALSE(refused(set("a", "2"), Refusal::TooManyKeys));
  pop("q");
  CHECK_FALSE(refused(set("c", "1"), Refusal::TooManyKeys));
}

TEST_CASE_METHOD(FullTableTest,
                 "store table: the limit of bytes holds, and deleted values make room",
                 "[unit][store]") {
  limit({.keys = 1000, .bytes = 10'000});
  const std::string value(9'000, 'v');
  CHECK_FALSE(refused(set("a", value), Refusal::TooManyBytes));
  CHECK(table.bytes() <= 10'000);
  CHECK(refused(set("b", value), Refusal::TooManyBytes));
  CHECK(
      refused(ask(1, {.query = Query::Append, .key = "a", .value = value}), Refusal::TooManyBytes));
  CHECK(refused(ask(1, {.query = Query::QueuePush, .key = "q", .value = value}),
                Refusal::TooManyBytes));
  const std::vector<std::string_view> many(100, "w");
  CHECK(refused(ask(1, {.query = Query::Wait, .keys = many}), Refusal::TooManyBytes));
  CHECK_FALSE(refused(set("a", "short"), Refusal::TooManyBytes));
  CHECK_FALSE(refused(set("b", value), Refusal::TooManyBytes));
  ask(1, {.query = Query::DeleteKey, .key = "a"});
  ask(1, {.query = Query::DeleteKey, .key = "b"});
  CHECK(table.bytes() == 0);
}

TEST_CASE("store table: a replaced value counts for as long as a reply holds it", "[unit][store]") {
  StoreTable table(StoreLimits{.keys = 1000, .bytes = 10'000});
  const auto ask = [&](const Request& request) { return table.apply({}, request); };
  const std::string value(4'000, 'v');
  ask({.query = Query::Set, .key = "a", .value = value});
  Reply reply = ask({.query = Query::Get, .key = "a"});
  CHECK(table.account().only_unread() == 0);
  ask({.query = Query::Set, .key = "a", .value = value});
  CHECK(table.account().only_unread() > value.size());
  CHECK(table.bytes() > 2 * value.size());
  CHECK(std::get<Refusal>(ask({.query = Query::Set, .key = "b", .value = value})) ==
        Refusal::TooManyBytes);
  CHECK(std::get<Refusal>(ask({.query = Query::Append, .key = "a", .value = value})) ==
        Refusal::TooManyBytes);
  reply = NoReply{};
  CHECK(table.account().only_unread() == 0);
  CHECK(std::holds_alternative<NoReply>(ask({.query = Query::Set, .key = "b", .value = value})));
}

TEST_CASE("store table: the account is empty when the table is, whatever was stored",
          "[unit][store]") {
  StoreTable table(StoreLimits{});
  const auto ask = [&](const Request& request) { return table.apply({}, request); };
  ask({.query = Query::Set, .key = "a", .value = "1"});
  ask({.query = Query::Append, .key = "a", .value = "1"});
  ask({.query = Query::Add, .key = "n", .number = 1});
  ask({.query = Query::QueuePush, .key = "q", .value = "1"});
  ask({.query = Query::QueuePush, .key = "q", .value = std::string(100'000, 'q')});
  CHECK(table.list_bytes() == 2 * 8 + 2);
  ask({.query = Query::QueuePop, .key = "q"});
  ask({.query = Query::DeleteKey, .key = "n"});
  CHECK(table.list_bytes() == 8 + 1);
  table.clear();
  CHECK(table.bytes() == 0);
  CHECK(table.account().kept == 0);
  CHECK(table.list_bytes() == 0);
}

TEST_CASE("store table: queues that come and go under a long wait cost the same each time",
          "[unit][store]") {
  StoreTable table(StoreLimits{});
  const auto ask = [&](std::uint32_t who, const Request& request) {
    return table.apply(ConnectionId{who}, request);
  };
  std::vector<std::string> names;
  for (int i = 0; i < 10'000; ++i)
    names.push_back("q" + std::to_string(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  ask(1, {.query = Query::Wait, .keys = keys});
  // All queues except two are filled. Each time, another one of the two is missing.
  for (std::size_t i = 1; i + 1 < names.size(); ++i)
    ask(2, {.query = Query::QueuePush, .key = names[i], .value = "v"});
  const std::uint64_t before = table.waiters_seen();
  for (int i = 0; i < 1'000; ++i) {
    for (const std::string& name : {names.front(), names.back()}) {
      ask(2, {.query = Query::QueuePush, .key = name, .value = "v"});
      CHECK(table.is_waiting({1}));
      ask(2, {.query = Query::QueuePop, .key = name});
    }
  }
  CHECK(table.waiters_seen() - before <= std::uint64_t{4} * 2'000);
  ask(2, {.query = Query::QueuePush, .key = names.front(), .value = "v"});
  ask(2, {.query = Query::QueuePush, .key = names.back(), .value = "v"});
  CHECK_FALSE(table.is_waiting({1}));
}

}  // namespace
}  // namespace muster
