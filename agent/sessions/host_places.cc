#include "agent/sessions/host_places.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "agent/sessions/store_dialer.h"
#include "base/net/name_lookup.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kMaxPlaces = 16;
// A place that is away must not keep a node long from its job.
constexpr Duration kMaxAsk = std::chrono::seconds(1);
constexpr Duration kMaxPlaceName = std::chrono::milliseconds(500);

/// The questions that are under way.
struct Asking {
  explicit Asking(const asio::any_io_executor& executor) : answered(executor) {}
  asio::steady_timer answered;  // Cancelled when no question is open any more.
  std::size_t open = 0;
  std::vector<MetHost> hosts;
  std::string unasked;
};

asio::awaitable<void> ask(std::shared_ptr<Asking> asking, asio::any_io_executor executor,
                          NativeClientOptions options, std::string place) {
  if (auto met = co_await ask_host(executor, std::move(options)))
    asking->hosts.push_back(*std::move(met));
  else
    asking->unasked += (asking->unasked.empty() ? "" : ", ") + place;
  if (--asking->open == 0) asking->answered.cancel();
}

}  // namespace

std::string HostPlace::text() const {
  return endpoint_text(address, endpoint.port);
}

asio::awaitable<std::vector<HostPlace>> host_places(
    const std::vector<RendezvousEndpoint>& endpoints) {
  std::vector<HostPlace> places;
  std::vector<std::string> known;
  for (const RendezvousEndpoint& endpoint : endpoints) {
    std::string name = endpoint.host;
    const NameLookup found = co_await look_up(std::move(name), kMaxPlaceName);
    for (const std::string& address : found.addresses) {
      HostPlace place{endpoint, address};
      const bool is_known = std::find(known.begin(), known.end(), place.text()) != known.end();
      if (is_known || places.size() == kMaxPlaces) continue;
      known.push_back(place.text());
      places.push_back(std::move(place));
    }
  }
  co_return places;
}

asio::awaitable<OtherHosts> ask_other_hosts(asio::any_io_executor executor,
                                            NativeClientOptions options,
                                            std::vector<RendezvousEndpoint> endpoints,
                                            MetHost found) {
  OtherHosts others;
  if (found.state_id.empty()) co_return others;
  const std::vector<HostPlace> places = co_await host_places(endpoints);
  const auto asking = std::make_shared<Asking>(executor);
  options.connect_timeout = options.lookup_timeout = kMaxAsk;
  options.answer_timeout = kMaxAsk;
  options.give_up_at = later(now(), kMaxAsk);
  for (const HostPlace& place : places) {
    if (place.text() == found.place) continue;
    options.host = place.endpoint.host;
    options.port = place.endpoint.port;
    options.addresses = {place.address};
    ++asking->open;
    NativeClientOptions copy = options;
    std::string text = place.text();
    spawn_task(executor, "ask_other_host", ask(asking, executor, std::move(copy), std::move(text)));
  }
  if (asking->open == 0) co_return others;
  asking->answered.expires_after(2 * kMaxAsk);
  co_await asking->answered.async_wait(kNoThrow);
  for (const MetHost& host : asking->hosts)
    if (others.conflict.empty()) others.conflict = why_not_both(found, host);
  others.unasked = asking->unasked;
  co_return others;
}

}  // namespace muster
