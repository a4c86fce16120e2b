#include "rendezvous/store/store_traffic.h"

#include <numeric>

namespace muster {

std::string_view to_string(Query query) {
  constexpr std::array<std::string_view, kQueryCount> kNames = {
      "validate",   "set",       "compare_set", "get",       "add",       "check",       "wait",
      "num_keys",   "delete",    "append",      "multi_get", "multi_set", "cancel_wait", "ping",
      "queue_push", "queue_pop", "queue_len",   "list_keys", "barrier"};
  return kNames[static_cast<std::size_t>(query)];
}

std::uint64_t StoreTraffic::all_requests() const {
  return std::accumulate(requests.begin(), requests.end(), native_messages);
}

}  // namespace muster
