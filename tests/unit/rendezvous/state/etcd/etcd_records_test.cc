#include "rendezvous/state/etcd/etcd_records.h"

#include <algorithm>

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

/// The keys that etcd would have after the changes. Each piece must fit into one transaction.
struct EtcdTwin {
  std::map<std::string, std::string> keys;

  void apply(const std::vector<EtcdChange>& changes) {
    std::set<std::string> seen;
    for (const EtcdChange& change : changes) {
      CHECK(seen.insert(change.key).second);
      if (change.kind == EtcdChange::Kind::Put) keys[change.key] = change.value;
      if (change.kind == EtcdChange::Kind::Delete) keys.erase(change.key);
      if (change.kind == EtcdChange::Kind::DeleteRange)
        keys.erase(keys.lower_bound(change.key), keys.lower_bound(change.value));
    }
  }
  std::vector<EtcdKeyValue> all() const {
    std::vector<EtcdKeyValue> list;
    for (const auto& [key, value] : keys)
      list.push_back({.key = key, .value = value});
    return list;
  }
  StoredState read_all(EtcdRecords& records) const {
    records.begin_reading();
    for (const EtcdKeyValue& entry : all())
      REQUIRE(records.read(entry).has_value());
    return records.finish_reading();
  }
  StoredState state() const {
    EtcdRecords records("/p", 100);
    return read_all(records);
  }
};

NodeName node(std::int64_t pid) {
  return {"10.0.0.1/x", pid, 0};
}

StateChanges run_with(const std::string& run_id, std::initializer_list<std::int64_t> nodes) {
  StateChanges changes;
  auto& run = changes.runs[run_id];
  run.record.emplace().round = 4;
  for (const std::int64_t pid : nodes)
    run.members[node(pid)].emplace().name = node(pid);
  return changes;
}

TEST_CASE("etcd records: the id of the state is read", "[unit][etcd]") {
  EtcdRecords records("/p", 100);
  EtcdTwin etcd;
  CHECK(etcd.read_all(records).id.empty());
  etcd.keys[records.id_key()] = "0123456789abcdef";
  CHECK(etcd.read_all(records).id == "0123456789abcdef");
}

TEST_CASE("etcd records: written runs are read back", "[unit][etcd]") {
  EtcdRecords records("/p", 100);
  EtcdTwin etcd;
  const std::string strange("a/b%c \n\xff", 8);
  etcd.apply(records.changes_of(run_with(strange, {1, 2})));
  etcd.apply(records.changes_of(run_with("a", {3})));
  CHECK(etcd.keys.count("/p/run/a%2Fb%25c%20%0A%FF") == 1);
  const StoredState state = etcd.state();
  REQUIRE(state.runs.size() == 2);
  CHECK(state.runs[0].run_id == "a");
  CHECK(state.runs[0].members.size() == 1);
  CHECK(state.runs[1].run_id == strange);
  CHECK(state.runs[1].record.round == 4);
  REQUIRE(state.runs[1].members.size() == 2);
  CHECK(state.runs[1].members[1].name == node(2));
}

TEST_CASE("etcd records: a member goes, a run goes, a run begins again", "[unit][etcd]") {
  EtcdRecords records("/p", 100);
  EtcdTwin etcd;
  etcd.apply(records.changes_of(run_with("a", {1, 2})));
  etcd.apply(records.changes_of(run_with("ab", {5})));
  StateChanges changes = run_with("a", {});
  changes.runs["a"].members[node(1)] = std::nullopt;
  etcd.apply(records.changes_of(changes));
  CHECK(etcd.state().runs[0].members.size() == 1);

  changes = run_with("a", {2, 3});
  changes.runs["a"].removed = true;
  etcd.apply(records.changes_of(changes));
  CHECK(etcd.state().runs[0].members.size() == 2);
  // A new leader also knows which keys exist.
  EtcdRecords next("/p", 100);
  (void)etcd.read_all(next);
  changes = run_with("a", {7});
  changes.runs["a"].removed = true;
  etcd.apply(next.changes_of(changes));
  CHECK(etcd.state().runs[0].members.size() == 1);

  StateChanges removed;
  removed.remove("a");
  etcd.apply(next.changes_of(removed));
  REQUIRE(etcd.state().runs.size() == 1);
  CHECK(etcd.state().runs[0].run_id == "ab");
  CHECK(etcd.state().runs[0].members.size() == 1);
}

TEST_CASE("etcd records: nodes of a run without a record are removed", "[unit][etcd]") {
  EtcdRecords records("/p", 100);
  EtcdTwin etcd;
  etcd.apply(records.changes_of(run_with("a", {1})));
  etcd.apply(records.changes_of(run_with("gone", {2, 3})));
  etcd.keys.erase("/p/run/gone");
  EtcdRecords next("/p", 100);
  const StoredState state = etcd.read_all(next);
  REQUIRE(state.runs.size() == 1);
  etcd.apply(next.removal_of_orphans());
  CHECK(etcd.keys.size() == 2);  // The run a and its node.
  etcd.apply(next.changes_of(run_with("gone", {4})));
  REQUIRE(etcd.state().runs.size() == 2);
  CHECK(etcd.state().runs[1].members.size() == 1);
}

TEST_CASE("etcd records: the history is bounded", "[unit][etcd]") {
  EtcdRecords records("/p", 2);
  EtcdTwin etcd;
  const auto ended = [](std::initializer_list<const char*> names) {
    StateChanges changes;
    for (const char* name : names)
      changes.ended.push_back({.run_id = name});
    return changes;
  };
  etcd.apply(records.changes_of(ended({"a"})));
  etcd.apply(records.changes_of(ended({"b", "c", "d"})));
  StoredState state = etcd.state();
  REQUIRE(state.ended.size() == 2);
  CHECK(state.ended[0].run_id == "c");
  CHECK(state.ended[1].run_id == "d");
  EtcdRecords next("/p", 2);
  (void)etcd.read_all(next);
  etcd.apply(next.changes_of(ended({"e"})));
  state = etcd.state();
  REQUIRE(state.ended.size() == 2);
  CHECK(state.ended[1].run_id == "e");
}

TEST_CASE("etcd records: changes are split where a transaction is full", "[unit][etcd]") {
  std::vector<EtcdChange> changes(2 * kMaxChangesOfTxn + 1, EtcdChange{.key = "k"});
  auto pieces = split_changes(changes);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[1].size() == kMaxChangesOfTxn);
  CHECK(pieces[2].size() == 1);
  changes.assign(3, EtcdChange{.key = "k", .value = std::string(kMaxBytesOfTxn / 2, 'v')});
  CHECK(split_changes(changes).size() == 3);
  CHECK(split_changes({}).empty());
}

TEST_CASE("etcd records: an error names the key that cannot be read", "[unit][etcd]") {
  const auto error_of = [](const std::string& key, const std::string& value) {
    EtcdRecords records("/p", 2);
    records.begin_reading();
    const auto read = records.read({.key = key, .value = value});
    REQUIRE_FALSE(read.has_value());
    CHECK_THAT(read.error().reason, Catch::Contains(key));
    return read.error().reason;
  };
  CHECK_THAT(error_of("/p/format", "2"), Catch::Contains("newer muster"));
  (void)error_of("/p/format", "x");
  (void)error_of("/p/run/a", "{}");
  (void)error_of("/p/run/a%2", "{}");
  (void)error_of("/p/member/a/b_1_0", "");
  (void)error_of("/p/ended/x", "{}");
  (void)error_of("/p/ended/00000000000000000001", "[]");
}

}  // namespace
}  // namespace muster::testing
