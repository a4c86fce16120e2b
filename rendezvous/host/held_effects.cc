#include "rendezvous/host/held_effects.h"

namespace muster {

std::optional<ConnectionId> recipient_of(const RunEffect& effect) {
  if (const auto* send = std::get_if<SendNative>(&effect)) return send->to;
  if (const auto* answer = std::get_if<AnswerHeld>(&effect)) return answer->to;
  return std::nullopt;
}

void HeldEffects::take_released(std::vector<RunEffect>& to) {
  for (; has_released(); held_.pop_front(), ++taken_) {
    const auto client = recipient_of(held_.front().effect);
    const auto dropped = client ? dropped_.find(client->value) : dropped_.end();
    if (dropped == dropped_.end() || taken_ >= dropped->second)
      to.push_back(std::move(held_.front().effect));
  }
  if (held_.empty()) dropped_.clear();
}

}  // namespace muster
