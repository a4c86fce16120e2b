#include "base/size_text.h"

#include <cstdint>

#include <catch2/catch.hpp>

namespace muster {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST_CASE("size_text: MiB, and GiB where that is shorter", "[unit][rendezvous]") {
  CHECK(size_text(0) == "0 MiB");
  CHECK(size_text(64 * kMiB) == "64 MiB");
  CHECK(size_text(1024 * kMiB - 1) == "1024 MiB");
  CHECK(size_text(1024 * kMiB) == "1.0 GiB");
  CHECK(size_text(2560 * kMiB) == "2.5 GiB");
  CHECK(mebibytes_text(3 * kMiB / 2, 1) == "1.5 MiB");
  CHECK(mebibytes_text(2560 * kMiB) == "2560 MiB");
}

}  // namespace
}  // namespace muster
