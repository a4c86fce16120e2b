// --rdzv-backend etcd: the agents of a run elect its host among themselves through etcd, and take
// part in the rendezvous as with any other host that is muster.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "agent/sessions/etcd_host.h"
#include "agent/sessions/searching_session.h"

namespace muster {

class EtcdSession final : public SearchingSession {
 public:
  EtcdSession(boost::asio::io_context& loop, const AgentOptions& options, Handlers handlers);

  void drain(const std::function<void()>& done) override;

 private:
  boost::asio::awaitable<void> begin(std::shared_ptr<bool> alive) override;
  boost::asio::awaitable<HostAnswerer> try_host(Instant deadline);
  void begin_native(HostAnswerer found);
  HostLocation host_location();
  void on_news();
  RendezvousSession::Handlers inner_handlers();
  NativeClientOptions host_options() const;
  std::string etcd_text() const;

  EtcdHost host_;
  NativeSession* native_ = nullptr;         // The inner session, once there is one.
  std::optional<RendezvousEndpoint> used_;  // The host that was looked for last.
};

}  // namespace muster
