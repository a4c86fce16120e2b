#include "rendezvous/state/etcd/host_record.h"

#include <catch2/catch.hpp>

namespace muster::testing {
namespace {

TEST_CASE("host record: a written record is read back", "[unit][etcd]") {
  const HostRecord elected{.name = "n1 pid 7"};
  CHECK(encode_host_record(elected) == "{\"name\":\"n1 pid 7\"}");
  CHECK((decode_host_record(encode_host_record(elected)) == elected));
  const HostRecord listens{.name = "n1 (pid 7)", .host = "fd00::1", .port = 40001};
  CHECK((decode_host_record(encode_host_record(listens)) == listens));
}

TEST_CASE("host record: records that muster does not write are refused", "[unit][etcd]") {
  for (const char* text :
       {"", "n1 pid 7", "7", "[]", "{}", R"({"name":7})", R"({"name":"a","host":"b"})",
        R"({"name":"a","host":"b","port":0})", R"({"name":"a","host":"b","port":65536})",
        R"({"name":"a","host":"b","port":-1})", R"({"name":"a","host":"","port":1})",
        R"({"name":"a","host":["b"],"port":1})"})
    CHECK_FALSE(decode_host_record(text).has_value());
  const HostRecord long_name{.name = std::string(kMaxHostRecordBytes, 'x')};
  CHECK_FALSE(decode_host_record(encode_host_record(long_name)).has_value());
  const HostRecord long_host{.name = "a", .host = std::string(300, 'h'), .port = 1};
  CHECK_FALSE(decode_host_record(encode_host_record(long_host)).has_value());
  // A log line must stay one line.
  const auto two_lines = decode_host_record(encode_host_record({.name = "a\nb"}));
  REQUIRE(two_lines.has_value());
  CHECK(two_lines->name.find('\n') == std::string::npos);
}

}  // namespace
}  // namespace muster::testing
