// Parses the JSON that musterd answers, within limits. Private.
#pragma once

#include <string_view>

#include "base/bounded_json.h"

namespace muster::ctl {

/// musterd's deepest answer has 5 levels. The 4,096 nodes of one answer have below a million
/// values.
inline constexpr JsonLimits kAnswerLimits{.values = 2'000'000, .depth = 32};

/// The error for an answer that cannot be read.
inline constexpr const char* kNotMusterdsAnswer =
    "this is no answer of musterd. Does it have another version? Compare `musterctl --version` "
    "with `musterd --version`";

/// The result is_discarded() if `text` is not JSON or exceeds a limit: another program than musterd
/// may answer.
inline nlohmann::json parse_json(std::string_view text) {
  nlohmann::json value;
  if (!parse_bounded_json(text, kAnswerLimits, value)) return value;
  return nlohmann::json(nlohmann::json::value_t::discarded);
}

}  // namespace muster::ctl
