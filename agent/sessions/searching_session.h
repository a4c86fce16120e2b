// A session that first has to find the host. Then an inner session for that kind of host takes part
// in the rendezvous.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "agent/core/agent_options.h"
#include "agent/sessions/host_search.h"
#include "agent/sessions/native_session.h"
#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/retry_pause.h"
#include "rendezvous/server/store_server.h"

namespace muster {

/// The rules of --rdzv-tls-allow for the rendezvous that this node hosts. Null without the option.
SharedTlsRules host_tls_rules(const RendezvousOptions& rendezvous);

class SearchingSession : public RendezvousSession {
 public:
  SearchingSession(boost::asio::io_context& loop, const AgentOptions& options, Handlers handlers);
  ~SearchingSession() override { *alive_ = false; }

  void join() override;
  void workers_failed(const WorkersFailure& failure) override {
    if (inner_) inner_->workers_failed(failure);
  }
  void progressed(std::optional<std::int64_t> step) override {
    if (inner_) inner_->progressed(step);
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
  void notify(const NodeNotice& notice) override;
  void saved() override {
    if (inner_) inner_->saved();
  }
  void report(const NodeReport& report) override {
    if (inner_) inner_->report(report);
  }
  void close() override;

 protected:
  /// Searches for the host. Called once. Ends with join_through() or with fail().
  virtual boost::asio::awaitable<void> begin(std::shared_ptr<bool> alive) = 0;

  /// From now on `inner` takes part in the rendezvous. It joins at once.
  void join_through(std::shared_ptr<RendezvousSession> inner);
  void fail(const std::string& reason);
  /// All endpoints of the options as one text, for people.
  std::string host_text() const;
  /// The options of this node as a client. The caller fills in the host.
  NativeClientOptions client_options() const;
  /// The options of a server for this run's rendezvous. The caller fills in port and addresses.
  StoreServerOptions server_options() const;
  /// Looks for a name that can stand for this node's IPv6 address. native_session() uses it.
  boost::asio::awaitable<void> find_own_name(const NativeClient& client, std::string host_name);
  /// The session for a host that is a muster. `host_name`: the name by which the other nodes reach
  /// the host. This function fills in this node's address.
  std::shared_ptr<NativeSession> native_session(FoundHost found, const std::string& host_name,
                                                Handlers handlers, NativeSession::Options options);

  boost::asio::io_context& loop_;
  const AgentOptions& options_;
  const RendezvousOptions& rendezvous_ = options_.rendezvous;
  Handlers handlers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive this.
  RetryPause pause_;
  std::shared_ptr<RendezvousSession> inner_;  // Null until the host is found.

 private:
  struct GivenNotice {
    Instant deadline{};
    std::string reason;
  };

  bool begun_ = false;
  std::optional<GivenNotice> notice_;  // Given before the host was found.
  std::string own_name_;               // Empty: this node is known by its address.
};

}  // namespace muster
