// What the connections of a store's server have brought and taken, counted since it began.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "rendezvous/core/store_request.h"

namespace muster {

/// "compare_set": the query's name in metrics. Lives for ever.
std::string_view to_string(Query query);

struct StoreTraffic {
  std::array<std::uint64_t, kQueryCount> requests{};  // By Query.
  std::uint64_t native_messages = 0;                  // From muster nodes.
  std::uint64_t received_bytes = 0;                   // Without what TLS adds, as the next one.
  std::uint64_t sent_bytes = 0;

  void count(Query query) { ++requests[static_cast<std::size_t>(query)]; }
  /// Requests of both doors.
  std::uint64_t all_requests() const;
};

}  // namespace muster
