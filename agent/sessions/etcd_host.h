// The host of a run whose agents use etcd: its location, and the server while this agent is
// elected.
//
// Each term of the election has its own connection to etcd and its own server. A host that was
// deposed closes every connection and stands for election again. docs/etcd.md,
// "Agents that elect their host".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/sessions/native_session.h"
#include "agent/sessions/store_thread.h"
#include "rendezvous/server/store_server.h"
#include "rendezvous/state/etcd/etcd_state.h"

namespace muster {

/// To be used on the thread of the loop. The loop outlives this object.
class EtcdHost {
 public:
  struct Options {
    EtcdStateOptions state;
    StoreServerOptions server;  // `state` is empty: each term sets its own.
    std::string local_addr;     // The address of this machine for other nodes. Empty: detected.
    std::string scope = {};     // This node's interface to the others (link-local addresses).
    std::string unusable;       // Why etcd cannot be used at all. Empty: etcd can be tried.
  };
  struct Handlers {
    /// location() or refusal() may have changed.
    std::function<void()> on_change;
    /// This agent can neither host nor find the host. `why` is a sentence. No handler is called
    /// afterwards.
    std::function<void(const std::string& why)> on_unusable;
  };
  EtcdHost(boost::asio::io_context& loop, Options options, Handlers handlers);
  EtcdHost(const EtcdHost&) = delete;
  EtcdHost& operator=(const EtcdHost&) = delete;
  ~EtcdHost();

  void start();
  HostLocation location() const;
  /// Why etcd refuses to name the host, so that asking again does not help. Empty: no refusal.
  const std::string& refusal() const { return refusal_; }
  bool is_here() const { return term_ && term_->store; }
  /// The address under which other nodes reach the host on this machine.
  const std::string& address() const { return address_; }
  /// If this agent is not the host, it does not become the host any more.
  void retire();
  /// Sends what the other nodes must still get, hands over to the next host, and calls `done`, at
  /// the latest after 5 seconds. No handler is called afterwards.
  void close(const std::function<void()>& done);

 private:
  struct Term {
    std::shared_ptr<EtcdRunState> state;
    std::unique_ptr<StoreThread> store;  // Null: this agent is not the host.
  };
  using TermPtr = std::shared_ptr<Term>;

  void begin_term();
  /// Ends the term, and begins the next one after a pause: this agent lacks a thread or a
  /// descriptor, which may pass. Meanwhile another agent can be elected.
  void begin_term_later(const std::string& why);
  void end_term(const std::function<void()>& ended);
  EtcdStateHandlers term_handlers(const TermPtr& term);
  /// Called on the storage thread: runs `work` on the loop if the term has not ended by then.
  template <typename Work>
  void on_loop(const std::weak_ptr<Term>& term, Work work);
  void on_leader(const std::string& value);
  void on_etcd_error(const std::string& why);
  void on_leading();
  void on_lost(const std::string& why);
  void on_unusable(const std::string& why);
  void notify_change() {
    if (handlers_.on_change) handlers_.on_change();
  }

  boost::asio::io_context& loop_;
  Options options_;
  Handlers handlers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive this.
  boost::asio::steady_timer pause_;  // Until the next term, after begin_term_later().
  bool wants_terms_ = false;         // This agent stands for election, or will after the pause.
  TermPtr term_;
  std::vector<TermPtr> ending_;             // Closed terms whose storage threads still run.
  std::optional<RendezvousEndpoint> host_;  // The latest known host.
  bool host_is_current_ = false;            // etcd's latest answer: `host_` is the host.
  bool no_host_ = false;                    // etcd's latest answer: no agent is the host.
  std::string etcd_error_ = "etcd has not answered yet";
  std::string refusal_;
  std::string address_;
};

}  // namespace muster
