#include "agent/io/network_session.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "rendezvous/net/clock.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr Duration kDrainLimit = std::chrono::seconds(2);

bool is_own(const asio::ip::address& address) {
  if (address.is_loopback()) return true;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family == AF_INET && address.is_v4()) {
      const auto* own = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      found = std::memcmp(&own->sin_addr, address.to_v4().to_bytes().data(), 4) == 0;
    } else if (entry->ifa_addr->sa_family == AF_INET6 && address.is_v6()) {
      const auto* own = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      found = std::memcmp(&own->sin6_addr, address.to_v6().to_bytes().data(), 16) == 0;
    }
  }
  ::freeifaddrs(list);
  return found;
}

std::int64_t seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

NetworkSession::NetworkSession(asio::io_context& loop, const AgentOptions& options,
                               Handlers handlers)
    : loop_(loop), options_(options), handlers_(std::move(handlers)) {}

NetworkSession::~NetworkSession() {
  *alive_ = false;
}

std::string NetworkSession::endpoint_text() const {
  const std::string& host = options_.rendezvous.host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(options_.rendezvous.port);
}

void NetworkSession::join() {
  if (inner_) return inner_->join();
  if (std::exchange(begun_, true)) return;
  spawn_task(loop_.get_executor(), "rendezvous_begin", begin(alive_));
}

asio::awaitable<void> NetworkSession::begin(std::shared_ptr<bool> alive) {
  const RendezvousSettings& settings = options_.rendezvous.settings;
  const bool is_here = settings.is_host ? *settings.is_host : co_await decide_host();
  if (!*alive) co_return;
  if (is_here && !start_hosting(settings.is_host.has_value())) co_return;
  const NativeClientOptions host = host_options();
  auto client = std::make_unique<NativeClient>(loop_.get_executor(), host);
  const Result<HostKind> kind = co_await client->connect();
  if (!*alive) co_return;
  if (!kind)
    co_return fail("cannot reach the rendezvous at " + endpoint_text() + ": " +
                   kind.error().message() + " (tried for up to " +
                   std::to_string(seconds(host.connect_timeout)) +
                   " s; --rdzv-conf read_timeout=SECONDS changes that)");
  switch (*kind) {
    case HostKind::Muster:
      co_return begin_native(std::move(client));
    case HostKind::Refused:
      co_return fail("the rendezvous at " + endpoint_text() +
                     " refused this node: " + client->refusal());
    case HostKind::Other:
      co_return begin_torch();
  }
}

asio::awaitable<bool> NetworkSession::decide_host() {
  const std::string& host = options_.rendezvous.host;
  boost::system::error_code not_numeric;
  const auto address = asio::ip::make_address(host, not_numeric);
  if (!not_numeric) co_return is_own(address);
  if (host == "localhost") co_return true;
  asio::ip::tcp::resolver resolver(loop_);
  auto [ec, found] = co_await resolver.async_resolve(host, "", asio::as_tuple(asio::use_awaitable));
  for (const auto& entry : found)
    if (is_own(entry.endpoint().address())) co_return true;
  co_return false;
}

// True if this node may go on: as the host, or as somebody else's client.
bool NetworkSession::start_hosting(bool must) {
  StoreServerOptions server;
  server.port = options_.rendezvous.port;
  const RendezvousSettings& settings = options_.rendezvous.settings;
  server.runs = RunServiceOptions{.muster_version = MUSTER_VERSION,
                                  .only_run = options_.run_id,
                                  .setup = {.run = settings.run,
                                            .lease = settings.lease,
                                            .keep_alive_interval = settings.keep_alive_interval,
                                            .dead_after = settings.dead_after()}};
  auto hosted = StoreThread::start(std::move(server));
  if (hosted) {
    hosted_ = std::move(*hosted);
    spdlog::debug("rendezvous_hosted port={} run={}", hosted_->port(), options_.run_id);
    return true;
  }
  // Another agent of this machine was first, or somebody's server: that is found out next.
  if (!must && hosted.error().code == boost::system::errc::address_in_use) return true;
  fail("cannot host the rendezvous: " + hosted.error().what());
  return false;
}

NativeClientOptions NetworkSession::host_options() const {
  const RendezvousOptions& rendezvous = options_.rendezvous;
  return {.host = hosted_ ? kLoopback : rendezvous.host,
          .port = hosted_ ? hosted_->port() : rendezvous.port,
          .run_id = options_.run_id,
          .connect_timeout = rendezvous.settings.read_timeout,
          .lost_after = rendezvous.settings.lease};
}

NodeFacts NetworkSession::node_facts(const std::string& address) const {
  const std::string& local = options_.rendezvous.local_addr;
  return {.name = {.addr = local.empty() ? address : local, .pid = ::getpid(), .local_id = 0},
          .local_world_size = options_.local_world_size,
          .role = options_.role,
          .preferred_rank = options_.rendezvous.preferred_rank,
          .hosts_rendezvous = hosted_ != nullptr};
}

void NetworkSession::begin_native(std::unique_ptr<NativeClient> client) {
  const std::string address = client->local_address().to_string();
  inner_ = std::make_unique<NativeSession>(
      loop_, handlers_,
      NativeSession::Options{.settings = options_.rendezvous.settings,
                             .node = node_facts(address),
                             .host = host_options()},
      std::move(client));
  inner_->join();
}

void NetworkSession::begin_torch() {
  fail("a torchrun hosts the rendezvous at " + endpoint_text());
}

void NetworkSession::fail(const std::string& reason) {
  if (handlers_.on_failed) handlers_.on_failed(reason);
}

void NetworkSession::workers_failed(const std::string& what) {
  if (inner_) inner_->workers_failed(what);
}

void NetworkSession::finished(bool succeeded, const std::string& what) {
  if (inner_) inner_->finished(succeeded, what);
}

void NetworkSession::leave() {
  if (inner_) inner_->leave();
}

void NetworkSession::close() {
  handlers_ = {};
  *alive_ = false;
  if (inner_) inner_->close();
}

void NetworkSession::drain(std::function<void()> done) {
  const auto then = [this, done = std::move(done)] {
    if (!hosted_) return done();
    hosted_->drain(now() + kDrainLimit, [this, done] { asio::post(loop_, done); });
  };
  if (!inner_) return then();
  inner_->drain(then);
}

}  // namespace muster
