#include "rendezvous/node/host_question.h"

#include <memory>

namespace muster {

MetHost met_host(const NativeClient& client) {
  const NativeWelcome& welcome = client.welcome();
  return {.place = client.remote_end(),
          .state_id = welcome.state_id,
          .state_is_shared = welcome.state_is_shared};
}

boost::asio::awaitable<std::optional<MetHost>> ask_host(boost::asio::any_io_executor executor,
                                                        NativeClientOptions options) {
  const auto client = std::make_unique<NativeClient>(executor, options);
  const auto kind = co_await client->connect();
  std::optional<MetHost> met;
  if (kind && *kind == HostKind::Muster) met = met_host(*client);
  client->close();
  co_return met;
}

}  // namespace muster
