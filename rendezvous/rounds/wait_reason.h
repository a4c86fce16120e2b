// Text for people: what the run waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace muster {

struct RunCore;

class WaitReason {
 public:
  /// Changes only when the state changes. Valid until the next call.
  std::string_view text(const RunCore& run) const;
  /// The same for one waiting node, with the reason why that node is not let in, if it is not.
  std::string text_for(const RunCore& run, ConnectionId waiting) const;

 private:
  mutable std::string text_;
  mutable std::optional<std::uint64_t> made_for_;  // The run's revision.
};

}  // namespace muster
