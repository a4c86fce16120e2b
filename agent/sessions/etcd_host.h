// The host of a run whose agents meet through etcd: where it is, and the host itself while this
// agent is the elected one.
//
// Each term of the election has its own connection to etcd and its own server: a host that was
// deposed closes every connection, and stands for election again. docs/rendezvous.md, "Agents and
// an etcd".
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
#include "rendezvous/etcd/etcd_state.h"
#include "rendezvous/net/store_server.h"

namespace muster {

/// On the thread of the loop, which outlives it.
class EtcdHost {
 public:
  struct Options {
    EtcdStateOptions state;
    StoreServerOptions server;  // Without a state.
    std::string local_addr;     // Under which others reach this machine; empty: found out.
    std::string unusable;       // Why etcd cannot be used at all; empty: it can be tried.
  };
  struct Handlers {
    /// where() or refusal() may say something else.
    std::function<void()> on_news;
    /// There will be no host here and none to be found: a sentence. Nothing follows.
    std::function<void(const std::string& why)> on_unusable;
  };
  EtcdHost(boost::asio::io_context& loop, Options options, Handlers handlers);
  EtcdHost(const EtcdHost&) = delete;
  EtcdHost& operator=(const EtcdHost&) = delete;
  ~EtcdHost();

  void start();
  HostLocation where() const;
  /// Why etcd will not say who the host is, however often it is asked. Empty: nothing of that kind.
  const std::string& refusal() const { return refusal_; }
  bool is_here() const { return term_ && term_->store; }
  /// Under which the others reach the host that is here.
  const std::string& address() const { return address_; }
  /// Does not become the host any more, if it is not.
  void retire();
  /// Sends what the others are to be told, hands over, and calls `done`; in any case after a few
  /// seconds. No handler is called any more.
  void close(const std::function<void()>& done);

 private:
  struct Term {
    std::shared_ptr<EtcdRunState> state;
    std::unique_ptr<StoreThread> store;  // Empty: it does not host.
  };
  using TermPtr = std::shared_ptr<Term>;

  void begin_term();
  void end_term(const std::function<void()>& ended);
  EtcdStateHandlers term_handlers(const TermPtr& term);
  /// For the storage thread: calls `work` on the loop, if the term still goes on.
  template <typename Work>
  void on_loop(const std::weak_ptr<Term>& term, Work work);
  void on_leader(const std::string& value);
  void on_trouble(const std::string& why);
  void on_leading();
  void on_lost(const std::string& why);
  void on_unusable(const std::string& why);
  void tell_news() {
    if (handlers_.on_news) handlers_.on_news();
  }

  boost::asio::io_context& loop_;
  Options options_;
  Handlers handlers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For tasks that outlive us.
  boost::asio::steady_timer close_limit_;
  TermPtr term_;
  std::vector<TermPtr> ending_;             // Until their storage threads have ended.
  std::optional<RendezvousEndpoint> host_;  // The latest that was known.
  bool nobody_ = false;                     // As etcd has said just now.
  std::string trouble_ = "etcd has not answered yet";
  std::string refusal_;
  std::string address_;
};

}  // namespace muster
