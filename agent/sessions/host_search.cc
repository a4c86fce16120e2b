#include "agent/sessions/host_search.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agent/sessions/store_dialer.h"
#include "rendezvous/core/check.h"
#include "rendezvous/core/limit_advice.h"
#include "rendezvous/net/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// The shortest time for one endpoint, also for the last one after slow ones.
constexpr Duration kMinShare = std::chrono::milliseconds(100);

/// Ranks answers: the one with the higher number says more about why there is no host.
int answer_priority(const Result<HostKind>& kind) {
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

std::string text_of(const boost::system::error_code& error) {
  const bool is_errno = error.category() == boost::system::system_category();
  return error.message() + (is_errno ? limit_advice(error.value()) : std::string());
}

}  // namespace

asio::awaitable<FoundHost> find_host(asio::any_io_executor executor, NativeClientOptions options,
                                     std::vector<RendezvousEndpoint> endpoints, std::size_t first) {
  MUSTER_CHECK(!endpoints.empty());
  const Instant deadline = now() + options.connect_timeout;
  const std::size_t count = endpoints.size();
  FoundHost best;
  std::string errors;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (first + i) % count;
    const RendezvousEndpoint& endpoint = endpoints[at];
    options.host = endpoint.host;
    options.port = endpoint.port;
    if (count > 1) options.addresses.clear();
    const Duration share = (deadline - now()) / static_cast<Duration::rep>(count - i);
    options.connect_timeout = std::max(share, kMinShare);
    FoundHost answer;
    answer.endpoint = at;
    answer.client = std::make_unique<NativeClient>(executor, options);
    answer.kind = co_await answer.client->connect();
    const bool found = answer.kind && *answer.kind == HostKind::Muster;
    if (!answer.kind) {
      const std::string named =
          count > 1 ? endpoint_text(endpoint.host, endpoint.port) + ": " : std::string();
      errors += (errors.empty() ? "" : "; ") + named + text_of(answer.kind.error());
    }
    if (!best.client || answer_priority(answer.kind) > answer_priority(best.kind))
      best = std::move(answer);
    if (found) break;
  }
  best.why = std::move(errors);
  co_return best;
}

}  // namespace muster
