#include <string>

#include <catch2/catch.hpp>

#include "rendezvous/store/store_table.h"

namespace muster::testing {

TEST_CASE("store table: APPEND makes no value longer than the limit, and a refusal changes nothing",
          "[unit][store]") {
  StoreTable table(StoreLimits{.appended_bytes = 100});
  const auto append = [&](std::size_t bytes) {
    const std::string value(bytes, 'v');
    return table.apply({}, {.query = Query::Append, .key = "a", .value = value});
  };
  CHECK(std::get<Refusal>(append(101)) == Refusal::TooLongValue);
  CHECK_FALSE(table.has("a"));
  CHECK(std::holds_alternative<NoReply>(append(60)));
  CHECK(std::get<Refusal>(append(41)) == Refusal::TooLongValue);
  CHECK(std::holds_alternative<NoReply>(append(40)));
  const Reply all = table.apply({}, {.query = Query::Get, .key = "a"});
  CHECK(std::get<Value>(all).bytes.size() == 100);
  // A SET has the limit of a request.
  const std::string longer(200, 'v');
  table.apply({}, {.query = Query::Set, .key = "a", .value = longer});
  CHECK(std::get<Refusal>(append(1)) == Refusal::TooLongValue);
}

}  // namespace muster::testing
