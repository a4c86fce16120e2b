// --rdzv-backend etcd: the agents of a run elect one of themselves as host through etcd. The rest
// is the same as with any other muster host.
#pragma once

#include <memory>
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
  boost::asio::awaitable<FoundHost> try_host(Instant deadline);
  void begin_native(FoundHost found);
  HostLocation host_location();
  void on_host_change();
  RendezvousSession::Handlers inner_handlers();
  NativeClientOptions host_options() const;
  std::string etcd_text() const;
  std::string host_name() const;

  EtcdHost host_;
  NativeSession* native_ = nullptr;       // The inner session. Null until it exists.
  RendezvousEndpoint searched_endpoint_;  // Where this node last looked for the host.
};

}  // namespace muster
