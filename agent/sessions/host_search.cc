#include "agent/sessions/host_search.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/error.hpp>

#include "agent/sessions/host_places.h"
#include "agent/sessions/store_dialer.h"
#include "base/check.h"
#include "base/limit_advice.h"
#include "base/net/connect_errors.h"
#include "base/net/name_lookup.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

// The shortest time for one endpoint, also for the last one after slow ones.
constexpr Duration kMinShare = std::chrono::milliseconds(100);

/// Ranks the answers of hosts: the one with the higher number says more about why there is none.
int answer_priority(HostKind kind) {
  switch (kind) {
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
/// An answer says more than an error.
int answer_priority(const Result<HostKind>& kind) {
  return kind ? answer_priority(*kind) : 0;
}

/// A host that answers, and is not the one that this node has met.
struct Stranger {
  std::string why;            // Empty: it is the known one, as far as is known.
  std::string known_address;  // Where the known one was, if the endpoint's name has that address.
};

asio::awaitable<Stranger> check(const KnownHost& known, const NativeClient& client,
                                const RendezvousEndpoint& endpoint,
                                const std::vector<RendezvousEndpoint>& endpoints) {
  Stranger stranger;
  const std::optional<MetHost>& met = known.host();
  if (!met || !met->differs_from(met_host(client))) co_return stranger;
  const std::vector<HostPlace> all = co_await host_places(endpoints);
  std::vector<std::string> places;
  places.reserve(all.size());
  for (const HostPlace& place : all) {
    places.push_back(place.text());
    if (place.endpoint == endpoint && places.back() == met->place)
      stranger.known_address = place.address;
  }
  stranger.why = known.why_not(met_host(client), places);
  co_return stranger;
}

asio::awaitable<FoundHost> try_once(asio::any_io_executor executor,
                                    const NativeClientOptions* options) {
  FoundHost answer;
  answer.client = std::make_unique<NativeClient>(executor, *options);
  answer.kind = co_await answer.client->connect();
  co_return answer;
}

bool is_muster(const FoundHost& answer) {
  return answer.kind && *answer.kind == HostKind::Muster;
}

std::string text_of(const boost::system::error_code& error) {
  const bool is_errno = error.category() == boost::system::system_category();
  return error.message() + (is_errno ? limit_advice(error.value()) : std::string());
}

}  // namespace

asio::awaitable<FoundHost> find_host(asio::any_io_executor executor, NativeClientOptions options,
                                     std::vector<RendezvousEndpoint> endpoints, std::size_t first,
                                     KnownHost known) {
  MUSTER_CHECK(!endpoints.empty());
  const Instant look_up_until = later(now(), options.lookup_timeout);
  Duration left = options.connect_timeout;
  std::vector<std::size_t> untried;
  untried.reserve(endpoints.size());
  for (std::size_t i = 0; i < endpoints.size(); ++i)
    untried.push_back((first + i) % endpoints.size());
  FoundHost best;
  ConnectErrors connect_errors;
  std::string errors;
  while (!untried.empty()) {
    // A name that no server answers for must not keep this node from the other endpoints.
    std::vector<std::string> names;
    names.reserve(untried.size());
    for (const std::size_t at : untried)
      names.push_back(endpoints[at].host);
    std::size_t next = 0;
    if (endpoints.size() > 1) next = co_await first_known(std::move(names), look_up_until - now());
    const std::size_t at = untried[next];
    const Duration share = left / static_cast<Duration::rep>(untried.size());
    untried.erase(untried.begin() + static_cast<std::ptrdiff_t>(next));
    const RendezvousEndpoint& endpoint = endpoints[at];
    options.host = endpoint.host;
    options.port = endpoint.port;
    if (endpoints.size() > 1) options.addresses.clear();
    options.connect_timeout = std::max(share, kMinShare);
    options.lookup_timeout = std::max<Duration>(look_up_until - now(), kMinShare);
    const Instant begun = now();
    FoundHost answer = co_await try_once(executor, &options);
    Stranger stranger;
    if (is_muster(answer)) stranger = co_await check(known, *answer.client, endpoint, endpoints);
    if (!stranger.why.empty() && !stranger.known_address.empty()) {
      // The known host may be there, too: of a name's addresses, one that answers was taken.
      options.addresses = {stranger.known_address};
      answer = co_await try_once(executor, &options);
      if (is_muster(answer)) stranger = {};
    }
    answer.endpoint = at;
    left -= std::min<Duration>(now() - begun, left);
    if (!stranger.why.empty()) {
      errors += (errors.empty() ? "" : "; ") + stranger.why;
      connect_errors.add(boost::asio::error::host_unreachable);
      continue;
    }
    const bool found = is_muster(answer);
    const bool was_silent = best.was_silent || answer.client->was_silent();
    if (!answer.kind) {
      connect_errors.add(answer.kind.error());
      const std::string named =
          endpoints.size() > 1 ? endpoint_text(endpoint.host, endpoint.port) + ": " : std::string();
      errors += (errors.empty() ? "" : "; ") + named + text_of(answer.kind.error());
    }
    if (!best.client || answer_priority(answer.kind) > answer_priority(best.kind))
      best = std::move(answer);
    best.was_silent = was_silent;
    if (found) break;
  }
  if (!best.client || !best.kind) best.kind = connect_errors.result();
  best.why = std::move(errors);
  co_return best;
}

}  // namespace muster
