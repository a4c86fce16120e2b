#include "agent/core/stat_text.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

constexpr const char* kStat =
    "71 (a) S (b) T 7 71 70 0 -1 4194304 1 0 0 0 250 50 30 20 20 0 1 0 987654 8192 300\n";

TEST_CASE("stat text: the fields are found behind any name", "[unit][agent]") {
  CHECK(start_in(kStat) == 987654);
  const StatText stat = parse_stat(kStat);
  CHECK(stat.state == 'T');
  CHECK(stat.own_ticks == 300);
  CHECK(stat.children_ticks == 50);
}

TEST_CASE("stat text: other texts give no fields", "[unit][agent]") {
  for (const char* text :
       {"", ")", "71 (a", "71 (a) S", "71 (a) S x", "71 (a) S 1 2 3 4 5 6 7 8"}) {
    CHECK_FALSE(start_in(text));
    CHECK(parse_stat(text).state == '?');
  }
}

TEST_CASE("stat text: numbers that no kernel writes overflow nothing", "[unit][agent]") {
  const std::string most = " 18446744073709551615";
  const StatText stat = parse_stat("1 (x) R 1 1 1 0 -1 0 0 0 0 0" + most + most + most + most);
  CHECK(stat.state == 'R');
}

TEST_CASE("stat text: the bytes that were written", "[unit][agent]") {
  CHECK(bytes_written_in("rchar: 1\nwchar: 4711\nsyscr: 2\n") == 4711);
  CHECK(bytes_written_in("rchar: 1\n") == 0);
  CHECK(bytes_written_in("") == 0);
}

TEST_CASE("stat text: the memory that is no copy of a file", "[unit][agent]") {
  const std::string status =
      "Name:\tRssAnon:\nVmRSS:\t     900 kB\nRssAnon:\t     500 kB\nRssFile:\t     390 kB\n"
      "RssShmem:\t      10 kB\nVmSwap:\t       2 kB\n";
  CHECK(own_memory_in(status) == 524288);
  CHECK(own_memory_in("VmRSS:\t 900 kB\n") == 0);
  CHECK(own_memory_in("") == 0);
}

}  // namespace
}  // namespace muster
