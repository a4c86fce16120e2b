// Counters of the requests and bytes of a store server's connections, since its start.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "rendezvous/store/store_request.h"

namespace muster {

/// "compare_set": the query's name in metrics. The text is static.
std::string_view to_string(Query query);

struct StoreTraffic {
  std::array<std::uint64_t, kQueryCount> requests{};  // By Query.
  std::uint64_t native_messages = 0;                  // From muster nodes.
  std::uint64_t received_bytes = 0;                   // Without the overhead of TLS.
  std::uint64_t sent_bytes = 0;                       // Without the overhead of TLS.

  void count(Query query) { ++requests[static_cast<std::size_t>(query)]; }
  /// Requests of both doors.
  std::uint64_t all_requests() const;
};

}  // namespace muster
