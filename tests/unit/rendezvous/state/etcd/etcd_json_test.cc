// The texts were recorded from etcd 3.4.23, and shortened.
#include "rendezvous/state/etcd/etcd_json.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

TEST_CASE("etcd json: a guarded transaction", "[unit][etcd]") {
  const std::vector<EtcdChange> changes = {
      {.key = "a", .value = "1", .lease = 7},
      {.kind = EtcdChange::Kind::Delete, .key = "b"},
      {.kind = EtcdChange::Kind::DeleteRange, .key = "c/", .value = "c0"}};
  CHECK(
      encode_txn({"lead", 12}, changes) ==
      R"({"compare":[{"key":"bGVhZA==","target":"CREATE","result":"EQUAL","create_revision":"12"}],)"
      R"("success":[{"request_put":{"key":"YQ==","value":"MQ==","lease":"7"}},)"
      R"({"request_delete_range":{"key":"Yg=="}},)"
      R"({"request_delete_range":{"key":"Yy8=","range_end":"YzA="}}]})");
  const auto read = decode_changes(encode_changes(changes));
  REQUIRE(read.has_value());
  CHECK(*read == changes);
}

TEST_CASE("etcd json: answers", "[unit][etcd]") {
  const auto txn = decode_txn(R"({"header":{"revision":"9","raft_term":"2"},"succeeded":true})");
  REQUIRE(txn.has_value());
  CHECK(txn->succeeded);
  CHECK(txn->revision == 9);
  CHECK_FALSE(decode_txn(R"({"header":{"revision":"9"}})")->succeeded);

  const auto range = decode_range(
      R"({"header":{"revision":"9"},"kvs":[{"key":"YQ==","create_revision":"3","version":"1",)"
      R"("value":"MQ==","lease":"-5"},{"key":"Yg=="}],"more":true,"count":"3"})");
  REQUIRE(range.has_value());
  CHECK(range->more);
  REQUIRE(range->found.size() == 2);
  CHECK(range->found[0].key == "a");
  CHECK(range->found[0].value == "1");
  CHECK(range->found[0].create_revision == 3);
  CHECK(range->found[0].lease == -5);
  CHECK(range->found[1].value.empty());

  CHECK(decode_lease_grant(R"({"header":{},"ID":"7587","TTL":"3"})")->seconds == 3);
  CHECK(decode_lease_kept(R"({"result":{"header":{},"ID":"7587","TTL":"3"}})")->id == 7587);
  // The lease has expired.
  CHECK(decode_lease_kept(R"({"result":{"header":{},"ID":"7587"}})")->seconds == 0);
}

TEST_CASE("etcd json: a user and its token", "[unit][etcd]") {
  CHECK(encode_authenticate("u", "p\"") == R"({"name":"u","password":"p\""})");
  CHECK(*decode_authenticated(R"({"header":{},"token":"abc.12"})") == "abc.12");
  // A token with characters that could start another header is refused.
  for (const char* text :
       {"", "{}", R"({"token":""})", R"({"token":"a\r\nb"})", R"({"token":"a b"})"})
    CHECK_FALSE(decode_authenticated(text).has_value());
  const std::string too_long = R"({"token":")" + std::string(20'000, 'x') + "\"}";
  CHECK_FALSE(decode_authenticated(too_long).has_value());
  CHECK(is_token_refused({.code = 16, .text = "etcdserver: invalid auth token"}));
  CHECK(is_token_refused({.code = 3, .text = "etcdserver: revision of auth store is old"}));
  CHECK_FALSE(is_token_refused({.code = 7, .text = "etcdserver: permission denied"}));
  CHECK_FALSE(is_token_refused(
      {.code = 3, .text = "etcdserver: authentication failed, invalid user ID or password"}));
}

TEST_CASE("etcd json: a refusal after which a new try may succeed", "[unit][etcd]") {
  CHECK(may_pass({.code = 0, .text = "<html>"}));
  CHECK(may_pass({.code = 2, .text = "rpc error: code = Unknown"}));
  CHECK(may_pass({.code = 8, .text = "etcdserver: too many requests"}));
  CHECK(may_pass({.code = 14, .text = "etcdserver: request timed out"}));
  CHECK_FALSE(may_pass({.code = 8, .text = "etcdserver: mvcc: database space exceeded"}));
  CHECK_FALSE(may_pass({.code = 3, .text = "etcdserver: request is too large"}));
  CHECK_FALSE(may_pass({.code = 7, .text = "etcdserver: permission denied"}));
}

TEST_CASE("etcd json: a watch", "[unit][etcd]") {
  const auto created = decode_watch(R"({"result":{"header":{"revision":"2"},"created":true}})");
  REQUIRE(created.has_value());
  CHECK_FALSE(created->has_events);
  CHECK(created->cancelled.empty());
  CHECK(
      decode_watch(R"({"result":{"events":[{"type":"DELETE","kv":{"key":"YQ=="}}]}})")->has_events);
  CHECK(decode_watch(R"({"result":{"canceled":true,"compact_revision":"5"}})")->cancelled ==
        "etcd does not say why");
  CHECK(
      decode_watch(R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})")->cancelled ==
      "etcdserver: no leader");
}

TEST_CASE("etcd json: malformed answers are errors, not crashes", "[unit][etcd]") {
  for (const char* text : {"", "{", "[]", "null", "7", R"({"header":7})",
                           R"({"header":{"revision":"x"}})", R"({"header":{"revision":1.5}})"}) {
    CHECK_FALSE(decode_txn(text).has_value());
    CHECK_FALSE(decode_range(text).has_value());
    CHECK_FALSE(decode_lease_grant(text).has_value());
    CHECK_FALSE(decode_lease_kept(text).has_value());
    CHECK_FALSE(decode_watch(text).has_value());
    CHECK(decode_etcd_refusal(text).text.empty());
  }
  CHECK_FALSE(decode_range(R"({"header":{"revision":"1"},"kvs":[{"key":"?"}]})").has_value());
  CHECK_FALSE(decode_range(R"({"header":{"revision":"1"},"kvs":{}})").has_value());
  CHECK_FALSE(decode_changes(R"([{"request_range":{"key":"YQ=="}}])").has_value());
  CHECK_FALSE(decode_changes(R"({})").has_value());
  const EtcdRefusal refusal =
      decode_etcd_refusal(R"({"error":"etcdserver: no space","code":8,"message":"no space"})");
  CHECK(refusal.code == 8);
  CHECK(refusal.text == "no space");
}

}  // namespace
}  // namespace muster::testing
