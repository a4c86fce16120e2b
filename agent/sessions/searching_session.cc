#include "agent/sessions/searching_session.h"

#include <utility>

#include "agent/core/host_match.h"
#include "agent/sessions/own_name.h"
#include "agent/sessions/session_choice.h"
#include "agent/sessions/store_dialer.h"
#include "base/address_scope.h"
#include "base/net/name_lookup.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "rendezvous/server/c10d_allow.h"
#include "rendezvous/server/server_limits.h"
#include "rendezvous/tls/tls_rules.h"

namespace muster {

SharedTlsRules host_tls_rules(const RendezvousOptions& rendezvous) {
  const auto& allow = rendezvous.tls_allow;
  return allow ? std::make_shared<TlsRules>(*allow) : nullptr;
}

SearchingSession::SearchingSession(boost::asio::io_context& loop, const AgentOptions& options,
                                   Handlers handlers)
    : loop_(loop), options_(options), handlers_(std::move(handlers)), pause_(loop.get_executor()) {}

void SearchingSession::join() {
  if (inner_) return inner_->join();
  if (std::exchange(begun_, true)) return;
  spawn_task(loop_.get_executor(), "rendezvous_begin", begin(alive_));
}

void SearchingSession::join_through(std::shared_ptr<RendezvousSession> inner) {
  inner_ = std::move(inner);
  if (const auto notice = std::exchange(notice_, std::nullopt))
    inner_->notify({.left = left_until(notice->deadline, kLongestWait), .reason = notice->reason});
  inner_->join();
}

void SearchingSession::notify(const NodeNotice& notice) {
  if (inner_) return inner_->notify(notice);
  const Instant deadline = later(now(), notice.left);
  if (!notice_ || deadline < notice_->deadline) notice_ = {deadline, notice.reason};
}

void SearchingSession::fail(const std::string& reason) {
  if (const auto on_failed = handlers_.on_failed) on_failed(reason);
}

void SearchingSession::close() {
  handlers_ = {};
  *alive_ = false;
  pause_.cancel();
  if (inner_) inner_->close();
}

std::string SearchingSession::host_text() const {
  std::string text = endpoint_text(rendezvous_.host, rendezvous_.port);
  for (const RendezvousEndpoint& endpoint : rendezvous_.further)
    text += "," + endpoint_text(endpoint.host, endpoint.port);
  return text;
}

NativeClientOptions SearchingSession::client_options() const {
  return {.host = {},
          .run_id = options_.run_id,
          .connect_timeout = rendezvous_.settings.read_timeout,
          .lost_after = rendezvous_.settings.lease,
          .token = rendezvous_.token,
          .tls = rendezvous_.tls};
}

StoreServerOptions SearchingSession::server_options() const {
  const RendezvousSettings& settings = rendezvous_.settings;
  StoreServerOptions server;
  server.limits = limits_of_one_job(most_workers(options_));
  server.runs = RunServiceOptions{.muster_version = MUSTER_VERSION,
                                  .only_run = options_.run_id,
                                  .setup = {.run = settings.run,
                                            .lease = settings.lease,
                                            .keep_alive_interval = settings.keep_alive_interval,
                                            .dead_after = settings.dead_after()}};
  server.token = rendezvous_.token;
  server.tls = rendezvous_.host_tls;
  server.tls_rules = host_tls_rules(rendezvous_);
  if (const auto& allow = rendezvous_.c10d_allow) server.c10d_allow = *allow;
  return server;
}

boost::asio::awaitable<void> SearchingSession::find_own_name(const NativeClient& client,
                                                             std::string host_name) {
  const auto own = client.local_address();
  if (!rendezvous_.local_addr.empty()) co_return;
  std::string address = node_address({}, host_name, own.to_string(), own.is_loopback());
  // Other machines may not know this machine's name, and all nodes of a round get one address.
  if (options_.max_nodes > 1 && !is_loopback_address(address)) co_return;
  if (!scope_of(address).empty()) co_return;
  const auto alive = alive_;
  std::string asked = address;
  std::string name = co_await name_for_url(std::move(asked));
  if (*alive && name != address) own_name_ = std::move(name);
}

std::shared_ptr<NativeSession> SearchingSession::native_session(FoundHost found,
                                                                const std::string& host_name,
                                                                Handlers handlers,
                                                                NativeSession::Options options) {
  const auto own = found.client->local_address();
  const std::string address =
      node_address(rendezvous_.local_addr, host_name, own.to_string(), own.is_loopback());
  // The other nodes' workers connect to exactly this address. Without a token the store still
  // listens everywhere: a script may use another address of rank 0, which works under torchrun.
  const bool is_own = !own.is_loopback() && address == own.to_string();
  if (is_own && rendezvous_.token && handlers_.restrict_store) handlers_.restrict_store(address);
  options.address = own_name_.empty() ? without_scope(address) : own_name_;
  for (const std::string& text : {rendezvous_.local_addr, own.to_string(), host_name})
    if (options.scope.empty()) options.scope = scope_of(text);
  return std::make_shared<NativeSession>(loop_, options_, std::move(handlers), std::move(options),
                                         std::move(found.client));
}

}  // namespace muster
