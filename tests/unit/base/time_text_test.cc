#include "base/time_text.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST_CASE("time_text: a time as torchrun writes it", "[unit][rendezvous]") {
  CHECK(date_time(0, '_') == "1970-01-01_00:00:00");
  CHECK(date_time(1'709'210'096, 'T') == "2024-02-29T12:34:56");
  CHECK(date_time(-1, '_') == "1969-12-31_23:59:59");
}

TEST_CASE("time_text: wall time is text, in UTC", "[unit][rendezvous]") {
  CHECK(utc_text(1'700'000'000'123'456us) == "2023-11-14T22:13:20.123Z");
  CHECK(utc_text(0us) == "1970-01-01T00:00:00.000Z");
  CHECK(utc_text(-1us) == "1969-12-31T23:59:59.999Z");
}

}  // namespace
}  // namespace muster
