// A session that has to find the host first: the session for that host takes part in the
// rendezvous.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/host_search.h"
#include "agent/sessions/native_session.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/retry_pause.h"
#include "rendezvous/net/store_server.h"

namespace muster {

/// --rdzv-tls-allow, for the rendezvous that this node hosts; null without it.
SharedTlsRules host_tls_rules(const RendezvousOptions& rendezvous);

class SearchingSession : public RendezvousSession {
 public:
  SearchingSession(boost::asio::io_context& loop, const AgentOptions& options, Handlers handlers);
  ~SearchingSession() override { *alive_ = false; }

  void join() override;
  void workers_failed(const std::string& what) override {
    if (inner_) inner_->workers_failed(what);
  }
  void finished(bool succeeded, const std::string& what) override {
    if (inner_) inner_->finished(succeeded, what);
  }
  void leave() override {
    if (inner_) inner_->leave();
  }
  void peer_reached(std::int64_t generation, int group_rank) override {
    if (inner_) inner_->peer_reached(generation, group_rank);
  }
  void report(const NodeReport& report) override {
    if (inner_) inner_->report(report);
  }
  void close() override;

 protected:
  /// The search, once. It ends with a session that has joined, or with fail().
  virtual boost::asio::awaitable<void> begin(std::shared_ptr<bool> alive) = 0;

  void join_by(std::shared_ptr<RendezvousSession> inner);
  void fail(const std::string& reason);
  /// Every endpoint of the options, for people.
  std::string host_text() const;
  /// This node as a client of any host; the host itself is to be filled in.
  NativeClientOptions client_options() const;
  /// The rendezvous of this run, where this node hosts it. Port and addresses are the caller's.
  StoreServerOptions server_options() const;
  /// The session for a host that is muster. `host_name`: by which the other nodes come to the host.
  /// This node's address is filled in here.
  std::shared_ptr<NativeSession> native_session(HostAnswerer found, const std::string& host_name,
                                                Handlers handlers, NativeSession::Options options);

  boost::asio::io_context& loop_;
  const AgentOptions& options_;
  const RendezvousOptions& rendezvous_ = options_.rendezvous;
  Handlers handlers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive us.
  RetryPause pause_;
  std::shared_ptr<RendezvousSession> inner_;  // Once the host was found.

 private:
  bool begun_ = false;
};

}  // namespace muster
