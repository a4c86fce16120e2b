#include "agent/sessions/etcd_session.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/sessions/store_dialer.h"
#include "base/address_scope.h"
#include "base/seconds_text.h"
#include "base/system/clock.h"
#include "rendezvous/state/etcd/etcd_login.h"
#include "rendezvous/state/etcd/etcd_records.h"
#include "rendezvous/state/etcd/host_record.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr Duration kHostConnectLeast = std::chrono::milliseconds(100);
constexpr Duration kMaxHostConnect = std::chrono::seconds(5);
constexpr Duration kWarnAfterHostWait = std::chrono::seconds(2);
// How long the records of a run stay in etcd if all its agents were killed: 2 hours, as torchrun's
// keys.
constexpr std::int64_t kRecordsSeconds = 7200;

EtcdHost::Options etcd_host_options(const AgentOptions& options, StoreServerOptions server) {
  if (server.runs) {
    server.runs->hands_over = true;
    // The host is a node of the run: when it is up, the other nodes can reach it. So it does not
    // wait for the network before it expects them.
    server.runs->setup.first_return = Duration::zero();
  }
  const RendezvousOptions& rendezvous = options.rendezvous;
  EtcdStateOptions state{
      .etcd = {.members = {{rendezvous.host, rendezvous.port}},
               .prefix = EtcdRecords::prefix_of_run(rendezvous.etcd.prefix, options.run_id)},
      .tls = rendezvous.etcd.tls,
      .tls_files = std::make_shared<EtcdTlsFiles>(
          etcd_tls_files({.certificate = rendezvous.etcd.tls_certificate,
                          .key = rendezvous.etcd.tls_key,
                          .ca = rendezvous.etcd.tls_ca})),
      .name = encode_host_record({.name = process_text()}),
      .lease_seconds =
          std::chrono::duration_cast<std::chrono::seconds>(rendezvous.etcd.host_lease).count(),
      .history = 1,
      .records_seconds = kRecordsSeconds};
  for (const RendezvousEndpoint& member : rendezvous.further)
    state.etcd.members.push_back({member.host, member.port});
  const auto setting = [&](const char* name) {
    const auto found = rendezvous.conf.find(name);
    return found == rendezvous.conf.end() ? std::string() : found->second;
  };
  auto login =
      load_etcd_login(setting("user"), setting("password_file"), "--rdzv-conf password_file");
  std::string unusable = login ? std::string() : login.error().reason;
  if (login) state.etcd.login = *std::move(login);
  return {
      .state = std::move(state),
      .server = std::move(server),
      .local_addr = rendezvous.local_addr,
      .scope = scope_of(rendezvous.local_addr.empty() ? rendezvous.host : rendezvous.local_addr),
      .unusable = std::move(unusable)};
}

}  // namespace

EtcdSession::EtcdSession(asio::io_context& loop, const AgentOptions& options, Handlers handlers)
    : SearchingSession(loop, options, std::move(handlers)),
      host_(loop, etcd_host_options(options, server_options()),
            {.on_change = [this] { on_host_change(); },
             .on_unusable = [this](const std::string& why) { fail(why); }}) {}

std::string EtcdSession::etcd_text() const {
  return "etcd " + host_text();
}

asio::awaitable<void> EtcdSession::begin(std::shared_ptr<bool> alive) {
  if (!*alive) co_return;
  host_.start();
  const Instant began = now();
  const NamedLimit limit = reach_limit(rendezvous_.settings);
  const Instant deadline = later(began, limit.time);
  std::string logged_error;
  for (;;) {
    FoundHost found = co_await try_host(deadline);
    if (!*alive) co_return;
    if (found.client && found.kind) {
      if (*found.kind == HostKind::Muster) {
        co_await find_own_name(*found.client, host_name());
        if (!*alive) co_return;
        co_return begin_native(std::move(found));
      }
      if (*found.kind != HostKind::Other) found.why = found.client->refusal();
    }
    const std::string error = found.why;
    const bool refused = !host_.refusal().empty();
    if (refused || now() >= deadline)
      co_return fail("cannot meet the other nodes through " + etcd_text() + ": " + error +
                     (refused ? std::string()
                              : " (tried for " + seconds_text(limit.time) + "; --rdzv-conf " +
                                    std::string(limit.key) + "=SECONDS changes that)"));
    if (now() - began > kWarnAfterHostWait && error != std::exchange(logged_error, error))
      spdlog::warn("waiting for the rendezvous through {}: {}", etcd_text(), error);
    co_await pause_.wait(deadline);
    if (!*alive) co_return;
  }
}

/// Connects to the host. If its location is unknown, the result has no client, and `why` gives the
/// reason.
asio::awaitable<FoundHost> EtcdSession::try_host(Instant deadline) {
  HostLocation location = host_location();
  FoundHost answer;
  answer.why = location.why;
  if (location.endpoints.empty()) co_return answer;
  NativeClientOptions client = host_options();
  client.connect_timeout = std::clamp(deadline - now(), kHostConnectLeast, kMaxHostConnect);
  const std::string at =
      endpoint_text(location.endpoints.front().host, location.endpoints.front().port);
  answer =
      co_await find_host(loop_.get_executor(), std::move(client), std::move(location.endpoints), 0);
  if (!answer.kind) answer.why = "its host at " + at + ": " + answer.why;
  if (answer.kind && *answer.kind == HostKind::Other)
    answer.why = "its host at " + at + " has closed the connection";
  co_return answer;
}

HostLocation EtcdSession::host_location() {
  HostLocation location = host_.location();
  if (!location.endpoints.empty()) searched_endpoint_ = location.endpoints.front();
  location.tls_name = host_options().tls_name;
  // Nodes can ask each other only through the store of rank 0's agent. If rank 0's worker hosts the
  // store, they go on as long as the last host's machine refuses connections.
  location.may_be_old = location.may_be_old && rendezvous_.shares_store;
  return location;
}

void EtcdSession::on_host_change() {
  pause_.cancel();
  if (native_ == nullptr || !*alive_) return;
  const HostLocation location = host_.location();
  const bool elsewhere =
      !location.endpoints.empty() && location.endpoints.front() != searched_endpoint_;
  if (location.no_host || elsewhere) native_->host_moved();
}

NativeClientOptions EtcdSession::host_options() const {
  NativeClientOptions host = client_options();
  // The certificate is for the announced address, which the other nodes use. This node checks it
  // for the same address, although it connects to loopback.
  if (host_.is_here()) host.tls_name = host_.address();
  return host;
}

/// The name by which the other nodes reach the host: the announced address. The host connects to
/// itself over loopback.
std::string EtcdSession::host_name() const {
  const HostLocation location = host_.location();
  if (!host_.is_here() && !location.endpoints.empty()) return location.endpoints.front().host;
  return host_.address();
}

void EtcdSession::begin_native(FoundHost found) {
  auto native = native_session(std::move(found), host_name(), inner_handlers(),
                               {.hosts_rendezvous = host_.is_here(),
                                .host = host_options(),
                                .endpoints = {searched_endpoint_},
                                .locate_host = [this] { return host_location(); },
                                .host_text = etcd_text()});
  native_ = native.get();
  join_through(std::move(native));
}

/// After the end of the run this agent must not become the host.
RendezvousSession::Handlers EtcdSession::inner_handlers() {
  Handlers handlers = handlers_;
  handlers.on_end = [this](SessionEnd end) {
    host_.retire();
    const auto on_end = handlers_.on_end;
    if (on_end) on_end(std::move(end));
  };
  return handlers;
}

void EtcdSession::drain(const std::function<void()>& done) {
  const auto then = [this, done] { host_.close(done); };
  if (!inner_) return then();
  inner_->drain(then);
}

}  // namespace muster
