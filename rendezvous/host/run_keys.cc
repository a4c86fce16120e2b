#include "rendezvous/host/run_keys.h"

#include <cstddef>

#include "rendezvous/torchrun/state_key.h"

namespace muster {

std::string_view run_of_key(std::string_view key) {
  if (!key.starts_with(kStateKeyPrefix) || key.size() == kStateKeyPrefix.size()) return {};
  // A run id that contains ".DIGITS/" is refused. So the first ".DIGITS/" in a key is the round.
  for (std::size_t slash = key.find('/', kStateKeyPrefix.size()); slash != std::string_view::npos;
       slash = key.find('/', slash + 1)) {
    const std::string_view head = key.substr(0, slash);
    const std::size_t dot = head.find_last_not_of("0123456789");
    const bool is_round = dot + 1 < head.size() && head[dot] == '.';
    if (is_round && dot > kStateKeyPrefix.size()) return head.substr(0, dot);
  }
  return key;
}

std::string_view run_of_request(const Request& request) {
  if (!request.key.empty()) return run_of_key(request.key);
  return request.keys.empty() ? std::string_view() : run_of_key(request.keys.front());
}

}  // namespace muster
