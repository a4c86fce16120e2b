#include "rendezvous/server/refusal_text.h"

#include <spdlog/fmt/fmt.h>

namespace muster {

std::string_view to_cause(Refusal refusal) {
  switch (refusal) {
    case Refusal::NotANumber:
      return "not a number";
    case Refusal::TooManyKeys:
      return "limit keys";
    case Refusal::TooLongValue:
      return "limit appended_bytes";
    case Refusal::TooManyBytes:
      break;
  }
  return "limit total_bytes";
}

std::string describe(Refusal refusal, const StoreLimits& limits) {
  switch (refusal) {
    case Refusal::NotANumber:
      return "ADD or BARRIER on a value that is not a number";
    case Refusal::TooManyKeys:
      return fmt::format("the store is full: limit keys={}", limits.keys);
    case Refusal::TooLongValue:
      return fmt::format("APPEND makes a value too long: limit appended_bytes={}",
                         limits.appended_bytes);
    case Refusal::TooManyBytes:
      break;
  }
  return fmt::format("the store is full: limit total_bytes={}", limits.bytes);
}

}  // namespace muster
