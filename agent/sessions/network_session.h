// --rdzv-backend c10d over a network: finds out whether this node, another muster or a torchrun
// hosts the rendezvous, and then creates the session for that kind of host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "agent/sessions/answer_patience.h"
#include "agent/sessions/endpoint_check.h"
#include "agent/sessions/host_places.h"
#include "agent/sessions/searching_session.h"
#include "agent/sessions/store_thread.h"

namespace muster {

class NetworkSession final : public SearchingSession {
 public:
  NetworkSession(boost::asio::io_context& loop, const AgentOptions& options, Handlers handlers);

  void drain(const std::function<void()>& done) override;

 private:
  boost::asio::awaitable<void> begin(std::shared_ptr<bool> alive) override;
  NativeClientOptions options_for_try(std::vector<std::string> addresses, Instant deadline) const;
  std::vector<RendezvousEndpoint> endpoints() const;
  bool lacks_certificate() const;
  bool start_hosting(bool must);
  bool start_http();
  void begin_with(FoundHost found);
  void begin_native(FoundHost found);
  void begin_torch();
  void begin_local();
  NativeClientOptions host_options() const;
  boost::asio::awaitable<OtherHosts> ask_others(const FoundHost& found, Instant deadline);
  void warn_of_unasked(const FoundHost& found, const OtherHosts& others) const;
  std::string host_at(std::size_t endpoint) const;
  std::string host_name(const FoundHost& found) const;

  EndpointChecker endpoint_checker_;
  std::unique_ptr<StoreThread> hosted_;  // The rendezvous server, if this node hosts it.
  AnswerPatience patience_{std::chrono::seconds(5)};
  bool is_here_ = false;  // The latest check says: the endpoint is this machine.
};

}  // namespace muster
