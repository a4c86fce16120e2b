#include "agent/core/end_cause.h"

#include <utility>

namespace muster {

EndCause refusal(std::string text) {
  return {"refused", "ValueError", std::move(text)};
}

EndCause lack(std::string text) {
  return {"start_failed", "OSError", std::move(text)};
}

EndCause agent_lost(std::string text) {
  return {"agent_lost", "RuntimeError", std::move(text)};
}

}  // namespace muster
