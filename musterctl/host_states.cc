#include "musterctl/host_states.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "base/net/spawn_task.h"
#include "rendezvous/node/native_client.h"
#include "rendezvous/tls/tls_context.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster::ctl {
namespace {

namespace asio = boost::asio;

constexpr Duration kAskWithin = std::chrono::seconds(2);
constexpr std::size_t kMaxHosts = 64;

asio::awaitable<void> ask(asio::any_io_executor executor, NativeClientOptions options,
                          std::shared_ptr<std::vector<HostState>> found) {
  auto client = std::make_unique<NativeClient>(executor, options);
  const auto kind = co_await client->connect();
  if (kind && *kind == HostKind::Muster && !client->welcome().state_id.empty())
    found->push_back({.place = client->remote_end(),
                      .id = client->welcome().state_id,
                      .is_shared = client->welcome().state_is_shared});
  client->close();
}

}  // namespace

std::vector<HostState> ask_hosts(const std::vector<HostPlaces>& places,
                                 const HostQuestion& question) {
  SharedTls tls;
  if (question.tls.any()) {
    auto context = make_tls_context(TlsSide::Client, question.tls);
    if (!context) return {};
    tls = make_tls_client(*std::move(context));
  }
  asio::io_context loop(1);
  const auto found = std::make_shared<std::vector<HostState>>();
  std::size_t asked = 0;
  for (const HostPlaces& place : places) {
    for (const std::string& address : place.addresses) {
      if (++asked > kMaxHosts) break;
      NativeClientOptions options{.host = place.endpoint.host,
                                  .addresses = {address},
                                  .port = place.endpoint.port,
                                  .run_id = question.run,
                                  .connect_timeout = kAskWithin,
                                  .token = question.token,
                                  .tls = tls};
      spawn_task(loop.get_executor(), "ask_host",
                 ask(loop.get_executor(), std::move(options), found));
    }
  }
  loop.run_for(2 * kAskWithin);
  std::sort(found->begin(), found->end(),
            [](const HostState& a, const HostState& b) { return a.place < b.place; });
  return *found;
}

}  // namespace muster::ctl
