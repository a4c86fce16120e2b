#include "agent/sessions/host_search.h"

#include <algorithm>
#include <utility>

#include "agent/sessions/store_dialer.h"
#include "rendezvous/core/check.h"
#include "rendezvous/net/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// Also for the last one, when those before it have taken longer than their share.
constexpr Duration kLeastShare = std::chrono::milliseconds(100);

/// Which of two answers says more about why there is no host: the higher one.
int weight_of(const Result<HostKind>& kind) {
  if (!kind) return kind.error() == boost::system::errc::connection_refused ? 0 : 1;
  switch (*kind) {
    case HostKind::Other:
      return 2;
    case HostKind::TlsLost:
      return 3;
    case HostKind::Unproven:
      return 4;
    case HostKind::TlsRefused:
      return 5;
    case HostKind::Refused:
      return 6;
    case HostKind::Muster:
      break;
  }
  return 7;
}

}  // namespace

asio::awaitable<HostAnswerer> find_host(asio::any_io_executor executor, NativeClientOptions options,
                                        std::vector<RendezvousEndpoint> endpoints,
                                        std::size_t first) {
  MUSTER_CHECK(!endpoints.empty());
  const Instant deadline = now() + options.connect_timeout;
  const std::size_t count = endpoints.size();
  HostAnswerer best;
  std::string errors;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (first + i) % count;
    const RendezvousEndpoint& endpoint = endpoints[at];
    options.host = endpoint.host;
    options.port = endpoint.port;
    if (count > 1) options.addresses.clear();
    const Duration share = (deadline - now()) / static_cast<Duration::rep>(count - i);
    options.connect_timeout = std::max(share, kLeastShare);
    HostAnswerer answer;
    answer.endpoint = at;
    answer.client = std::make_unique<NativeClient>(executor, options);
    answer.kind = co_await answer.client->connect();
    const bool found = answer.kind && *answer.kind == HostKind::Muster;
    if (!answer.kind) {
      const std::string named =
          count > 1 ? endpoint_text(endpoint.host, endpoint.port) + ": " : std::string();
      errors += (errors.empty() ? "" : "; ") + named + answer.kind.error().message();
    }
    if (!best.client || weight_of(answer.kind) > weight_of(best.kind)) best = std::move(answer);
    if (found) break;
  }
  best.why = std::move(errors);
  co_return best;
}

}  // namespace muster
