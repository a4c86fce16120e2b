#include "nccl_choice.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Value = std::optional<std::string_view>;
constexpr TorchRelease k213{2, 13};
constexpr TorchRelease k214{2, 14};
constexpr TorchRelease k215{2, 15};
constexpr Value kUnset;

bool is_nccl2(TorchRelease torch, Value value) {
  return choose_nccl(torch, value) == NcclClass::ProcessGroupNCCL2;
}

TEST_CASE("nccl choice: torch 2.13 and earlier have one class", "[unit][worker_sdk]") {
  for (const Value value : {kUnset, Value("0"), Value("1")}) {
    CHECK_FALSE(is_nccl2(k213, value));
    CHECK_FALSE(is_nccl2({1, 99}, value));
  }
}

TEST_CASE("nccl choice: in torch 2.14, only 1 chooses the second class", "[unit][worker_sdk]") {
  CHECK_FALSE(is_nccl2(k214, kUnset));
  CHECK_FALSE(is_nccl2(k214, "0"));
  CHECK_FALSE(is_nccl2(k214, "true"));
  CHECK(is_nccl2(k214, "1"));
}

TEST_CASE("nccl choice: from torch 2.15 on, only 0 chooses the first class", "[unit][worker_sdk]") {
  for (const TorchRelease torch : {k215, TorchRelease{2, 16}, TorchRelease{3, 0}}) {
    CHECK(is_nccl2(torch, kUnset));
    CHECK(is_nccl2(torch, "1"));
    CHECK(is_nccl2(torch, ""));
    CHECK(is_nccl2(torch, "00"));
    CHECK_FALSE(is_nccl2(torch, "0"));
  }
}

TEST_CASE("nccl choice: the second class binds a GPU by itself from torch 2.15 on",
          "[unit][worker_sdk]") {
  CHECK_FALSE(nccl2_binds_a_device(k214));
  CHECK(nccl2_binds_a_device(k215));
}

TEST_CASE("nccl choice: the first set variable is the size of the flight recorder",
          "[unit][worker_sdk]") {
  CHECK(recorder_entries(kUnset, kUnset) == 2000);
  CHECK(recorder_entries("0", "500") == 0);
  CHECK(recorder_entries("", "500") == 500);
  CHECK(recorder_entries(kUnset, "0") == 0);
  CHECK(recorder_entries("64", kUnset) == 64);
}

}  // namespace
}  // namespace muster
