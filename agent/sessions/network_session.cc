#include "agent/sessions/network_session.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "agent/sessions/c10d_session.h"
#include "agent/sessions/hosted_options.h"
#include "agent/sessions/local_session.h"
#include "agent/sessions/retry_pause.h"
#include "agent/sessions/store_dialer.h"
#include "rendezvous/core/seconds_text.h"
#include "rendezvous/http/http_route.h"
#include "rendezvous/net/clock.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr const char* kLoopbackAddress = "127.0.0.1";
// From connecting to the store's answer, before it is tried again.
constexpr Duration kStoreConnectLeast = std::chrono::milliseconds(100);
constexpr Duration kStoreConnectMost = std::chrono::seconds(5);
// One name server's silence takes 5 s; then the next one is asked.
constexpr Duration kNameLeast = std::chrono::milliseconds(100);
constexpr Duration kNameMost = std::chrono::seconds(15);
constexpr Duration kOwnNameWithin = std::chrono::seconds(1);
constexpr Duration kWaitWorthTelling = std::chrono::seconds(2);
constexpr Duration kDrainLimit = std::chrono::seconds(2);
constexpr const char* kNoCertificate =
    "this node cannot host the rendezvous itself: TLS needs --rdzv-tls-cert and --rdzv-tls-key for "
    "that; or let musterd be the host";

}  // namespace

NetworkSession::NetworkSession(asio::io_context& loop, const AgentOptions& options,
                               Handlers handlers)
    : loop_(loop),
      options_(options),
      handlers_(std::move(handlers)),
      host_finder_(options.rendezvous.host),
      is_here_(options.rendezvous.settings.is_host.value_or(false)) {}

NetworkSession::~NetworkSession() {
  *alive_ = false;
}

std::string NetworkSession::host_text() const {
  const RendezvousOptions& rendezvous = options_.rendezvous;
  std::string text = endpoint_text(rendezvous.host, rendezvous.port);
  for (const RendezvousEndpoint& endpoint : rendezvous.further)
    text += "," + endpoint_text(endpoint.host, endpoint.port);
  return text;
}

std::string NetworkSession::host_text(std::size_t endpoint) const {
  if (options_.rendezvous.further.empty()) return host_text();
  const RendezvousEndpoint at = endpoints()[endpoint];
  return endpoint_text(at.host, at.port);
}

/// Where the rendezvous may be; one of them, if it is here.
std::vector<RendezvousEndpoint> NetworkSession::endpoints() const {
  const RendezvousOptions& rendezvous = options_.rendezvous;
  if (hosted_) return {{kLoopbackAddress, hosted_->port()}};
  std::vector<RendezvousEndpoint> all = {{rendezvous.host, rendezvous.port}};
  all.insert(all.end(), rendezvous.further.begin(), rendezvous.further.end());
  return all;
}

void NetworkSession::join() {
  if (inner_) return inner_->join();
  if (std::exchange(begun_, true)) return;
  spawn_task(loop_.get_executor(), "rendezvous_begin", begin(alive_));
}

// Who hosts is asked again for each try: a name may come to mean this machine only later.
asio::awaitable<void> NetworkSession::begin(std::shared_ptr<bool> alive) {
  const RendezvousSettings& settings = options_.rendezvous.settings;
  const Instant began = now();
  const Instant deadline = began + settings.read_timeout;
  RetryPause pause(loop_.get_executor());
  std::string told;
  bool closed_before = false;
  for (;;) {
    HostAnswer host;
    if (!settings.is_host && !hosted_ && options_.rendezvous.further.empty()) {
      const Duration limit = std::clamp(deadline - now(), kNameLeast, kNameMost);
      host = co_await host_finder_.find(limit, kOwnNameWithin);
      if (!*alive) co_return;
      // More than torchrun would: it does not look at the interfaces, and then nobody hosts.
      is_here_ = host.match != HostMatch::Elsewhere;
    }
    if (is_here_ && !hosted_ && !start_hosting(settings.is_host.has_value())) co_return;
    std::string error = hosted_ ? std::string() : host.endpoint_trouble;
    if (error.empty()) {
      auto options = options_for_try(std::move(host.facts.endpoint_addresses), deadline);
      std::vector<RendezvousEndpoint> where = endpoints();
      auto found =
          co_await find_host(loop_.get_executor(), std::move(options), std::move(where), 0);
      if (!*alive) co_return;
      const Result<HostKind>& kind = found.kind;
      // A host that dies just then closes the connection, too: only who does so twice is torch's,
      // or does not speak TLS.
      const bool closed = kind && (*kind == HostKind::Other || *kind == HostKind::TlsLost);
      if (kind && (!closed || std::exchange(closed_before, true)))
        co_return begin_with(std::move(found));
      closed_before = closed;
      error = kind ? "it has closed the connection" : found.why;
    }
    if (now() >= deadline)
      co_return fail("cannot reach the rendezvous at " + host_text() + ": " + error +
                     " (tried for " + seconds_text(settings.read_timeout) +
                     "; --rdzv-conf read_timeout=SECONDS changes that)" +
                     (is_here_ && lacks_certificate() ? std::string("; ") + kNoCertificate : ""));
    if (now() - began > kWaitWorthTelling && error != std::exchange(told, error))
      spdlog::warn("waiting for the rendezvous at {}: {}", host_text(), error);
    co_await pause.wait(deadline);
    if (!*alive) co_return;
  }
}

/// `addresses`: where the endpoint is, if that was asked for just now.
NativeClientOptions NetworkSession::options_for_try(std::vector<std::string> addresses,
                                                    Instant deadline) const {
  NativeClientOptions options = host_options();
  if (!hosted_) options.addresses = std::move(addresses);
  options.connect_timeout = std::clamp(deadline - now(), kStoreConnectLeast, kStoreConnectMost);
  options.retry = false;
  return options;
}

void NetworkSession::begin_with(HostAnswerer found) {
  const std::string host = host_text(found.endpoint);
  switch (*found.kind) {
    case HostKind::Muster:
      return begin_native(std::move(found));
    case HostKind::Refused:
      // Another job of this machine has the port. One node needs nobody else.
      if (is_here_ && options_.max_nodes == 1) return begin_local();
      return fail("the rendezvous at " + host + " refused this node: " + found.client->refusal());
    case HostKind::Unproven:
    case HostKind::TlsRefused:
    case HostKind::TlsLost:
      if (is_here_ && options_.max_nodes == 1) return begin_local();
      return fail("this node does not join the rendezvous at " + host + ": " +
                  found.client->refusal());
    case HostKind::Other:
      if (!options_.rendezvous.further.empty())
        return fail("this node does not join the rendezvous at " + host +
                    ": it is torchrun's, and several endpoints are for musterds that share their "
                    "state; name one endpoint");
      if (!options_.rendezvous.token) return begin_torch();
      return fail("this node does not join the rendezvous at " + host +
                  ": it is torchrun's, which cannot prove that it has this node's token; leave out "
                  "--rdzv-token-file, or let a muster node or musterd be the host");
  }
}

/// To host a rendezvous by TLS a node needs a certificate, as any server does.
bool NetworkSession::lacks_certificate() const {
  return options_.rendezvous.tls && !options_.rendezvous.host_tls;
}

// True if this node may go on: as the host, or as somebody else's client.
bool NetworkSession::start_hosting(bool must) {
  if (lacks_certificate()) {
    if (must) fail(kNoCertificate);
    return !must;  // A musterd may be here, or still come.
  }
  StoreServerOptions server = hosted_store_options(options_);
  server.port = options_.rendezvous.port;
  if (options_.rendezvous.standalone) server.addresses = {kLoopbackAddress};
  auto hosted = StoreThread::start(std::move(server));
  if (hosted) {
    hosted_ = std::move(*hosted);
    spdlog::debug("rendezvous_hosted port={} run={}", hosted_->port(), options_.run_id);
    return start_http();
  }
  // Another agent of this machine was first, or somebody's server: that is found out next.
  if (!must && hosted.error().code == boost::system::errc::address_in_use) return true;
  fail("cannot host the rendezvous: " + hosted.error().what());
  return false;
}

// --http, if it was given. Who asked for it and cannot have it learns so before a worker starts.
bool NetworkSession::start_http() {
  const RendezvousOptions& rendezvous = options_.rendezvous;
  if (rendezvous.http.empty()) return true;
  const auto address = http::parse_address(rendezvous.http);
  if (!address) return fail("--http: " + address.error().reason), false;
  http::HttpDoor door{.token = rendezvous.token,
                      .tls = rendezvous.host_tls,
                      .tls_rules = host_tls_rules(rendezvous)};
  const auto url = hosted_->serve_http(*address, std::move(door));
  if (!url) return fail("--http: " + url.error().what()), false;
  spdlog::warn("HTTP at {} shows what goes on in run {}", *url, options_.run_id);
  return true;
}

NativeClientOptions NetworkSession::host_options() const {
  const RendezvousOptions& rendezvous = options_.rendezvous;
  return {.host = hosted_ ? kLoopbackAddress : rendezvous.host,
          .port = hosted_ ? hosted_->port() : rendezvous.port,
          .run_id = options_.run_id,
          .connect_timeout = rendezvous.settings.read_timeout,
          .lost_after = rendezvous.settings.lease,
          .token = rendezvous.token,
          .tls = rendezvous.tls,
          // The others come by this name: the certificate is for it, also where it is here.
          .tls_name = hosted_ ? rendezvous.host : std::string()};
}

SessionNode NetworkSession::node_facts(const std::string& address) const {
  return {.name = {.addr = address, .pid = ::getpid(), .local_id = 0},
          .local_world_size = options_.local_world_size,
          .role = options_.role,
          .preferred_rank = options_.rendezvous.preferred_rank,
          .hosts_rendezvous = hosted_ != nullptr};
}

void NetworkSession::begin_native(HostAnswerer found) {
  const auto own = found.client->local_address();
  // The host reaches itself by loopback: the others come by the endpoint's name.
  const std::string host = hosted_ ? options_.rendezvous.host : endpoints()[found.endpoint].host;
  const std::string address =
      node_address(options_.rendezvous.local_addr, host, own.to_string(), own.is_loopback());
  // The other nodes' workers come to this very address. Without a token nothing changes: a script
  // that takes another address of rank 0 works under torchrun, too.
  const bool is_own = !own.is_loopback() && address == own.to_string();
  if (is_own && options_.rendezvous.token && handlers_.store_at) handlers_.store_at(address);
  inner_ = std::make_unique<NativeSession>(
      loop_, handlers_,
      NativeSession::Options{
          .settings = options_.rendezvous.settings,
          .node = node_facts(address),
          .host = host_options(),
          .endpoints = endpoints(),
          .endpoint = found.endpoint,
          .host_text = hosted_ ? endpoint_text(kLoopbackAddress, hosted_->port()) : host_text(),
          .worker_identical = options_.rendezvous.worker_identical,
          .shares_store = options_.rendezvous.shares_store},
      std::move(found.client));
  inner_->join();
}

void NetworkSession::begin_local() {
  const std::string& address = options_.rendezvous.local_addr;
  inner_ = std::make_unique<LocalSession>(handlers_, options_.local_world_size,
                                          address.empty() ? kLoopbackAddress : address);
  inner_->join();
}

void NetworkSession::begin_torch() {
  spdlog::debug("rendezvous_by_torchrun endpoint={}", host_text());
  inner_ = make_c10d_session(loop_.get_executor(), options_, handlers_);
  inner_->join();
}

void NetworkSession::fail(const std::string& reason) {
  if (handlers_.on_failed) handlers_.on_failed(reason);
}

void NetworkSession::close() {
  handlers_ = {};
  *alive_ = false;
  if (inner_) inner_->close();
}

void NetworkSession::drain(const std::function<void()>& done) {
  const auto then = [this, done] {
    if (!hosted_) return done();
    hosted_->drain(now() + kDrainLimit, [this, done] { asio::post(loop_, done); });
  };
  if (!inner_) return then();
  inner_->drain(then);
}

}  // namespace muster
