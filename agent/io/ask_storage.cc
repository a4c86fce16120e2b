#include "agent/io/ask_storage.h"

#include <chrono>

#include "agent/posix/bounded_child.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kLimit(5);

}  // namespace

std::optional<std::string> ask_storage(const std::function<std::string()>& ask) {
  return answer_in_time(ask, kLimit);
}

}  // namespace muster
