#include "musterctl/host_states.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "base/net/spawn_task.h"
#include "rendezvous/node/host_question.h"
#include "rendezvous/tls/tls_context.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster::ctl {
namespace {

namespace asio = boost::asio;

constexpr Duration kAskWithin = std::chrono::seconds(2);
constexpr std::size_t kMaxHosts = 64;

asio::awaitable<void> ask(asio::any_io_executor executor, NativeClientOptions options,
                          std::shared_ptr<std::vector<MetHost>> found) {
  auto met = co_await ask_host(executor, std::move(options));
  if (met && !met->state_id.empty()) found->push_back(*std::move(met));
}

}  // namespace

std::vector<MetHost> ask_hosts(const std::vector<HostPlaces>& places,
                               const HostQuestion& question) {
  SharedTls tls;
  if (question.tls.any()) {
    auto context = make_tls_context(TlsSide::Client, question.tls);
    if (!context) return {};
    tls = make_tls_client(*std::move(context));
  }
  asio::io_context loop(1);
  const auto found = std::make_shared<std::vector<MetHost>>();
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
            [](const MetHost& a, const MetHost& b) { return a.place < b.place; });
  return *found;
}

}  // namespace muster::ctl
