#include "agent/sessions/network_session.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "agent/sessions/c10d_session.h"
#include "agent/sessions/local_session.h"
#include "agent/sessions/store_dialer.h"
#include "base/net/name_lookup.h"
#include "base/seconds_text.h"
#include "base/system/clock.h"
#include "rendezvous/http/http_route.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr const char* kLoopbackAddress = "127.0.0.1";
// The time limit of one try: from connecting to the host's answer.
constexpr Duration kStoreConnectLeast = std::chrono::milliseconds(100);
constexpr Duration kMaxStoreConnect = std::chrono::seconds(5);
constexpr Duration kNameLeast = std::chrono::milliseconds(100);
constexpr Duration kOwnNameWithin = std::chrono::seconds(1);
// A proxy accepts connections and closes them while the host is not there yet. How long that must
// go on before it ends this node's part in the rendezvous.
constexpr Duration kClosedLeast = std::chrono::seconds(5);
// How long two hosts must have been found that do not share their state.
constexpr Duration kConflictLeast = std::chrono::seconds(2);
constexpr Duration kWarnAfterWaiting = std::chrono::seconds(2);
constexpr Duration kDrainLimit = std::chrono::seconds(2);
constexpr const char* kSilentPort = " (it accepts connections: is another program at this port?)";
constexpr const char* kNoCertificate =
    "this node cannot host the rendezvous itself: TLS needs --rdzv-tls-cert and --rdzv-tls-key for "
    "that; or let musterd be the host";

}  // namespace

NetworkSession::NetworkSession(asio::io_context& loop, const AgentOptions& options,
                               Handlers handlers)
    : SearchingSession(loop, options, std::move(handlers)),
      endpoint_checker_(options.rendezvous.host),
      is_here_(options.rendezvous.settings.is_host.value_or(false)) {}

std::string NetworkSession::host_at(std::size_t endpoint) const {
  if (rendezvous_.further.empty()) return host_text();
  const RendezvousEndpoint at = endpoints()[endpoint];
  return endpoint_text(at.host, at.port);
}

/// Where the rendezvous may be: one loopback endpoint if this node hosts it.
std::vector<RendezvousEndpoint> NetworkSession::endpoints() const {
  if (hosted_) return {{kLoopbackAddress, hosted_->port()}};
  std::vector<RendezvousEndpoint> all = {{rendezvous_.host, rendezvous_.port}};
  all.insert(all.end(), rendezvous_.further.begin(), rendezvous_.further.end());
  return all;
}

// Each try checks again whether this machine is the host: the endpoint's name may resolve to this
// machine only later.
asio::awaitable<void> NetworkSession::begin(std::shared_ptr<bool> alive) {
  const RendezvousSettings& settings = rendezvous_.settings;
  const Instant began = now();
  const NamedLimit limit = reach_limit(settings);
  const Instant deadline = later(began, limit.time);
  std::string logged_error;
  std::optional<Instant> closed_since;
  std::optional<Instant> conflict_since;
  for (;;) {
    EndpointCheck host;
    if (!settings.is_host && !hosted_ && rendezvous_.further.empty()) {
      const Duration name_limit = std::clamp(deadline - now(), kNameLeast, kMaxName);
      host = co_await endpoint_checker_.check(name_limit, kOwnNameWithin);
      if (!*alive) co_return;
      // torchrun does not look at the interfaces. In the case OnInterface no torchrun would host.
      is_here_ = host.match != HostMatch::Elsewhere;
    }
    if (is_here_ && !hosted_ && !start_hosting(settings.is_host.has_value())) co_return;
    std::string error = hosted_ ? std::string() : host.lookup_error;
    const bool is_unknown_name = !error.empty();
    if (error.empty()) {
      auto options = options_for_try(std::move(host.facts.endpoint_addresses), deadline);
      std::vector<RendezvousEndpoint> where = endpoints();
      auto found =
          co_await find_host(loop_.get_executor(), std::move(options), std::move(where), 0);
      if (!*alive) co_return;
      patience_.tried(found.was_silent);
      const Result<HostKind>& kind = found.kind;
      // A server that closes the connection is a torch store, or does not speak TLS. A muster host
      // that dies at this moment also closes it. So only the second close counts.
      const bool closed = kind && (*kind == HostKind::Other || *kind == HostKind::TlsLost);
      const Duration least = rendezvous_.tls ? kClosedLeast : Duration{};
      const bool counts = closed_since && now() >= std::min(*closed_since + least, deadline);
      if (kind && (!closed || counts)) {
        OtherHosts others;
        if (*kind == HostKind::Muster) others = co_await ask_others(found, deadline);
        if (!*alive) co_return;
        if (others.conflict.empty()) {
          if (!others.unasked.empty()) warn_of_unasked(found, others);
          if (*kind == HostKind::Muster) co_await find_own_name(*found.client, host_name(found));
          if (!*alive) co_return;
          co_return begin_with(std::move(found));
        }
        // One that is started again gives each of its addresses the same id a moment later.
        conflict_since = conflict_since.value_or(now());
        if (now() >= *conflict_since + kConflictLeast) co_return fail(others.conflict);
        error = others.conflict;
      } else {
        conflict_since.reset();
        closed_since = closed ? closed_since.value_or(now()) : std::optional<Instant>();
        error = kind ? "it has closed the connection" : found.why;
        if (!kind && found.was_silent) error += kSilentPort;
      }
    }
    if (now() >= deadline)
      co_return fail("cannot reach the rendezvous at " + host_text() + ": " + error +
                     " (tried for " + seconds_text(limit.time) + "; --rdzv-conf " +
                     std::string(limit.key) + "=SECONDS changes that)" +
                     (is_here_ && lacks_certificate() ? std::string("; ") + kNoCertificate : ""));
    if (now() - began > kWarnAfterWaiting && error != std::exchange(logged_error, error))
      spdlog::warn("waiting for the rendezvous at {}, for {} at most (--rdzv-conf {}): {}{}",
                   host_text(), seconds_text(limit.time), limit.key, error,
                   is_unknown_name ? "; is the name right? `getent hosts " + rendezvous_.host +
                                         "` asks this machine's resolver"
                   : is_here_ ? std::string()
                              : std::string("; a node or a musterd must run at this address"));
    co_await pause_.wait(deadline);
    if (!*alive) co_return;
  }
}

/// `addresses`: the endpoint's addresses, if they have just been looked up.
NativeClientOptions NetworkSession::options_for_try(std::vector<std::string> addresses,
                                                    Instant deadline) const {
  NativeClientOptions options = host_options();
  if (!hosted_) options.addresses = std::move(addresses);
  options.connect_timeout = std::clamp(deadline - now(), kStoreConnectLeast, kMaxStoreConnect);
  options.lookup_timeout = std::clamp(deadline - now(), kNameLeast, kMaxName);
  options.answer_timeout = std::clamp(deadline - now(), kStoreConnectLeast, patience_.limit());
  options.give_up_at = std::max(deadline, now() + kStoreConnectLeast);
  return options;
}

asio::awaitable<OtherHosts> NetworkSession::ask_others(const FoundHost& found, Instant deadline) {
  if (hosted_) co_return OtherHosts{};
  std::vector<RendezvousEndpoint> where = endpoints();
  NativeClientOptions options = options_for_try({}, deadline);
  MetHost met = met_host(*found.client);
  co_return co_await ask_other_hosts(loop_.get_executor(), std::move(options), std::move(where),
                                     std::move(met));
}

/// Of a host that shares its state, only one listens at a time. Of the addresses of one name, some
/// are often of no use.
void NetworkSession::warn_of_unasked(const FoundHost& found, const OtherHosts& others) const {
  const MetHost host = met_host(*found.client);
  if (host.state_is_shared || rendezvous_.further.empty()) return;
  spdlog::warn(
      "the musterd at {} shares its state with no other one, and {} cannot be asked now: nodes "
      "that "
      "find another musterd there are lost for this job (--state=etcd://... is for several "
      "musterds)",
      host.place, others.unasked);
}

void NetworkSession::begin_with(FoundHost found) {
  const std::string host = host_at(found.endpoint);
  switch (*found.kind) {
    case HostKind::Muster:
      return begin_native(std::move(found));
    case HostKind::Refused:
      // Another job on this machine has the port. A job with one node needs no host.
      if (is_here_ && options_.max_nodes == 1) return begin_local();
      return fail("the rendezvous at " + host + " refused this node: " + found.client->refusal());
    case HostKind::Unproven:
    case HostKind::TlsRefused:
    case HostKind::TlsLost:
      if (is_here_ && options_.max_nodes == 1) return begin_local();
      return fail("this node does not join the rendezvous at " + host + ": " +
                  found.client->refusal() +
                  (*found.kind == HostKind::TlsRefused && rendezvous_.tls
                       ? " (--rdzv-tls-ca " + rendezvous_.tls_ca + ")"
                       : ""));
    case HostKind::Other:
      if (!rendezvous_.further.empty())
        return fail("this node does not join the rendezvous at " + host +
                    ": it is torchrun's, and several endpoints are for musterds that share their "
                    "state; name one endpoint");
      if (!rendezvous_.token) return begin_torch();
      return fail("this node does not join the rendezvous at " + host +
                  ": it is torchrun's, which cannot prove that it has this node's token; leave out "
                  "--rdzv-token-file, or let a muster node or musterd be the host");
  }
}

/// Whether this node cannot host because it uses TLS and has no certificate of its own.
bool NetworkSession::lacks_certificate() const {
  return rendezvous_.tls && !rendezvous_.host_tls;
}

// Returns whether this node can go on, as the host or as a client of another host.
bool NetworkSession::start_hosting(bool must) {
  if (lacks_certificate()) {
    if (must) fail(kNoCertificate);
    return !must;  // A musterd may run on this machine, or start later.
  }
  StoreServerOptions server = server_options();
  server.port = rendezvous_.port;
  if (rendezvous_.standalone) server.addresses = {kLoopbackAddress};
  auto hosted = StoreThread::start(std::move(server));
  if (hosted) {
    hosted_ = std::move(*hosted);
    spdlog::debug("rendezvous_hosted port={} run={}", hosted_->port(), options_.run_id);
    return start_http();
  }
  // Another agent on this machine has the port, or another server: the next try connects and finds
  // out.
  if (!must && hosted.error().code == boost::system::errc::address_in_use) return true;
  fail("cannot host the rendezvous: " + hosted.error().what());
  return false;
}

// Starts the HTTP server if --http was given. A failure ends the job before a worker starts.
bool NetworkSession::start_http() {
  if (rendezvous_.http.empty()) return true;
  const auto address = http::parse_address(rendezvous_.http);
  if (!address) return fail("--http: " + address.error().reason), false;
  http::HttpDoor door{.token = rendezvous_.token,
                      .tls = rendezvous_.host_tls,
                      .tls_rules = host_tls_rules(rendezvous_)};
  const auto url = hosted_->serve_http(*address, std::move(door));
  if (!url) return fail("--http: " + url.error().what()), false;
  spdlog::warn("HTTP at {} shows what goes on in run {}", *url, options_.run_id);
  return true;
}

NativeClientOptions NetworkSession::host_options() const {
  NativeClientOptions host = client_options();
  host.host = hosted_ ? kLoopbackAddress : rendezvous_.host;
  host.port = hosted_ ? hosted_->port() : rendezvous_.port;
  // The other nodes use this name, so the certificate is for it. This node checks the same name,
  // although it connects to loopback.
  if (hosted_) host.tls_name = rendezvous_.host;
  return host;
}

/// The name by which the other nodes reach the host. The host connects to itself over loopback.
std::string NetworkSession::host_name(const FoundHost& found) const {
  return hosted_ ? rendezvous_.host : endpoints()[found.endpoint].host;
}

void NetworkSession::begin_native(FoundHost found) {
  if (rendezvous_.settings.cas_backoff > Duration{})
    spdlog::warn(
        "--rdzv-conf cas_backoff_max_seconds has no effect: muster hosts the rendezvous, and a "
        "muster node writes a state by compare-and-set only where torchrun hosts");
  const std::size_t endpoint = found.endpoint;
  const std::string host = host_name(found);
  const std::string text = hosted_ ? endpoint_text(kLoopbackAddress, hosted_->port()) : host_text();
  join_through(native_session(std::move(found), host, handlers_,
                              {.hosts_rendezvous = hosted_ != nullptr,
                               .host = host_options(),
                               .endpoints = endpoints(),
                               .endpoint = endpoint,
                               .host_text = text}));
}

void NetworkSession::begin_local() {
  const std::string& address = rendezvous_.local_addr;
  join_through(std::make_shared<LocalSession>(loop_.get_executor(), handlers_,
                                              options_.local_world_size,
                                              address.empty() ? kLoopbackAddress : address));
}

void NetworkSession::begin_torch() {
  spdlog::debug("rendezvous_by_torchrun endpoint={}", host_text());
  join_through(make_c10d_session(loop_.get_executor(), options_, handlers_));
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
