#include "rendezvous/http/http_server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <climits>
#include <spdlog/spdlog.h>

#include "base/net/guarded_loop.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/net/unmapped.h"
#include "base/system/clock.h"
#include "base/system/thread_without_signals.h"
#include "rendezvous/http/http_reply.h"
#include "rendezvous/http/http_session.h"
#include "rendezvous/server/store_server.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster::http {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using asio::ip::tcp;

namespace {

constexpr Duration kAcceptPause = std::chrono::milliseconds(200);

double seconds_of(WallTime time) {
  const std::int64_t milliseconds = time.microseconds / 1000;
  return static_cast<double>(milliseconds) / 1000;
}

// The view of a musterd that stands by: empty figures, or the reason why there are no runs.
SharedView view_of_standby(const std::string& why, const ViewRequest& request) {
  if (request.what != ViewRequest::What::Figures)
    return std::make_shared<const View>(StandingBy{why});
  AllFigures none;
  none.runs.leads = false;
  return std::make_shared<const View>(std::move(none));
}

// Creates a view. Called on the loop of the store.
SharedView view_of(const HttpSource& source, const ViewRequest& request) {
  if (source.store == nullptr) return view_of_standby(source.standing_by, request);
  const StoreServer& store = *source.store;
  const RunService::Time time{now(), wall_now()};
  const RunService* runs = store.runs();
  if (request.what == ViewRequest::What::Figures) {
    const StoreServerStats stats = store.stats();
    AllFigures all;
    if (runs != nullptr) all.runs = runs->figures(time.now);
    all.store = {.connections = stats.connections,
                 .accepted = stats.accepted,
                 .refused = stats.refused,
                 .traffic = stats.traffic,
                 .waiting = stats.waiting,
                 .keys = stats.keys,
                 .bytes = stats.table_bytes,
                 .unread_bytes = stats.unread_bytes,
                 .closed = stats.closed};
    all.draining = stats.draining;
    return std::make_shared<const View>(std::move(all));
  }
  if (request.what == ViewRequest::What::Runs) {
    RunsView none{.now = time.now, .wall = time.wall};
    if (runs == nullptr) return std::make_shared<const View>(std::move(none));
    return std::make_shared<const View>(
        runs->view_runs(request.offset, request.limit, time, request.scope));
  }
  std::optional<RunView> run;
  if (runs != nullptr) run = runs->view_run(request.run, {request.offset, request.limit}, time);
  if (!run) return std::make_shared<const View>(UnknownRun{});
  return std::make_shared<const View>(std::move(*run));
}

// Without a look-up in DNS. Empty: this machine has no name.
std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

constexpr auto kAnswersWithin = std::chrono::seconds(1);

// Lowers the priority of the HTTP thread, so that the threads that serve the jobs run first if all
// processors are busy. On Linux this call changes only the calling thread.
void lower_priority() {
  constexpr int kNice = 10;
  if (::setpriority(PRIO_PROCESS, 0, kNice) != 0)
    spdlog::debug("http: its priority stays as it is: {}", std::strerror(errno));
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(HttpDoor door)
      : loop_(1),
        acceptor_(loop_),
        end_limit_(loop_),
        shared_(std::make_shared<Shared>(std::move(door))) {}
  ~Impl() {
    try {
      asio::post(loop_, [this] { end(); });
    } catch (const std::bad_alloc&) {
      loop_.stop();
    }
    if (thread_.joinable()) thread_.join();
    shared_->on_operators_gone = nullptr;
  }

  boost::system::error_code listen(const tcp::endpoint& endpoint) {
    boost::system::error_code ec;
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
    return ec;
  }
  tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }

  void run(asio::io_context& runs_loop, const FindSource& find) {
    shared_->began_seconds = seconds_of(wall_now());
    shared_->server.host = host_name();
    shared_->server.version = MUSTER_VERSION;
    shared_->loopback_only = endpoint().address().is_loopback();
    shared_->views = std::make_shared<ViewSource>(
        loop_, [&runs_loop, find](ViewRequest request, std::function<void(SharedView)> done) {
          asio::post(runs_loop, [find, request = std::move(request), done = std::move(done)] {
            done(view_of(find(), request));
          });
        });
    shared_->operate = [this, &runs_loop, find](Action action, const OperatedWaiter& waiter) {
      asio::post(runs_loop, [find, answer = posted_to(loop_, waiter), action = std::move(action)] {
        const HttpSource source = find();
        if (source.store == nullptr)
          return answer(Operated{.objection = objection_of_standby(source.standing_by)});
        const auto objection = source.store->operate(
            action.id, action.asked,
            [answer](std::string text) { answer(Operated{.text = std::move(text)}); });
        if (!objection) return answer(std::nullopt);
        if (!objection->empty()) answer(Operated{.objection = *objection});
      });
    };
    shared_->questions = {
        [this, &runs_loop, find](RankQuestion question, const AnsweredWaiter& waiter) {
          return ask(runs_loop, find, std::move(question), waiter);
        },
        [&runs_loop, find](std::uint64_t number) {
          asio::post(runs_loop, [find, number] {
            if (StoreServer* store = find().store) store->forget_question(number);
          });
        }};
    spawn_task(loop_.get_executor(), "http_accept", accept_all());
    thread_ = thread_without_signals([this] {
      lower_priority();
      run_guarded(loop_, "http");
    });
  }

 private:
  void end();
  asio::awaitable<void> accept_all();
  asio::awaitable<void> serve(tcp::socket socket, asio::ip::address peer);
  asio::awaitable<bool> begin(tcp::socket& socket, HttpPeer& peer);
  std::uint64_t ask(asio::io_context& runs_loop, const FindSource& find, RankQuestion question,
                    const AnsweredWaiter& waiter);

  asio::io_context loop_;
  tcp::acceptor acceptor_;
  asio::steady_timer end_limit_;
  std::shared_ptr<Shared> shared_;
  std::map<asio::ip::address, std::size_t> open_of_;
  std::uint64_t last_question_ = 0;
  std::thread thread_;
};

// Ends the loop. If clients have asked for a change, waits at most kAnswersWithin until they have
// the answer and close their connections.
void HttpServer::Impl::end() {
  if (shared_->operator_connections == 0) return loop_.stop();
  shared_->on_operators_gone = [this] { loop_.stop(); };
  end_limit_.expires_after(kAnswersWithin);
  end_limit_.async_wait([this](const boost::system::error_code&) { loop_.stop(); });
}

// Asks a node. The answer comes on the jobs' loop, at once or later, and is posted to this loop.
std::uint64_t HttpServer::Impl::ask(asio::io_context& runs_loop, const FindSource& find,
                                    RankQuestion question, const AnsweredWaiter& waiter) {
  const std::uint64_t number = question.asked.number = ++last_question_;
  asio::post(runs_loop, [find, answer = posted_to(loop_, waiter), question = std::move(question)] {
    const HttpSource source = find();
    const auto objection = source.store == nullptr ? objection_of_standby(source.standing_by)
                                                   : source.store->ask(question.id, question.rank,
                                                                       question.asked, answer);
    if (!objection) return answer(std::nullopt);
    NodeAnswered refused;
    refused.error = *objection;
    if (!objection->empty()) answer(std::move(refused));
  });
  return number;
}

asio::awaitable<void> HttpServer::Impl::accept_all() {
  asio::steady_timer pause(loop_);
  for (;;) {
    auto [ec, socket] = co_await acceptor_.async_accept(kNoThrow);
    if (ec == asio::error::operation_aborted) co_return;
    boost::system::error_code gone;
    const auto peer = ec ? tcp::endpoint() : socket.remote_endpoint(gone);
    if (ec) {  // Probably no descriptors are left: the jobs must get free ones first.
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(kNoThrow);
      continue;
    }
    if (gone) continue;
    const auto address = unmapped(peer.address());
    const auto known = open_of_.find(address);
    const std::size_t of_peer = known == open_of_.end() ? 0 : known->second;
    const bool peer_is_full = of_peer >= kMaxConnectionsPerAddress;
    const bool is_full = peer_is_full || shared_->figures.connections >= kMaxConnections;
    // Otherwise a few strangers that keep connections open would shut out probes and operators.
    if (is_full && !shared_->idle.close_oldest(peer_is_full ? &address : nullptr)) {
      ++shared_->figures.refused;
      continue;  // The destructor closes the socket.
    }
    spawn_task(loop_.get_executor(), "http_connection", serve(std::move(socket), address));
  }
}

asio::awaitable<void> HttpServer::Impl::serve(tcp::socket socket, asio::ip::address peer) {
  ++shared_->figures.connections;
  try {
    ++open_of_[peer];
    HttpPeer who{peer};
    const bool begun = co_await begin(socket, who);
    if (begun) co_await serve_http(std::move(socket), shared_, std::move(who));
  } catch (const std::exception& error) {  // Out of memory: only this connection ends.
    spdlog::error("http_connection_failed peer={} error=\"{}\"", peer.to_string(), error.what());
  }
  --shared_->figures.connections;
  if (const auto known = open_of_.find(peer); known != open_of_.end() && --known->second == 0)
    open_of_.erase(known);
}

/// With TLS: looks at the first byte, and begins TLS if the client uses it. Returns false if
/// nothing has come in time, or if TLS cannot begin.
asio::awaitable<bool> HttpServer::Impl::begin(tcp::socket& socket, HttpPeer& peer) {
  if (!shared_->tls) co_return true;
  asio::steady_timer limit(loop_);
  limit.expires_after(kRequestWithin);
  const auto shared = shared_;  // This coroutine may be destroyed after this object.
  std::optional<IdleConnections::Place> idle;
  idle.emplace(shared->idle, peer.address, [&socket] {
    boost::system::error_code ignored;
    socket.cancel(ignored);
  });
  const auto done =
      co_await (socket.async_wait(tcp::socket::wait_read, kNoThrow) || limit.async_wait(kNoThrow));
  idle.reset();
  if (done.index() != 0) co_return false;
  unsigned char first = 0;
  if (::recv(socket.native_handle(), &first, 1, MSG_PEEK) != 1) co_return false;
  peer.secure = first == kTlsFirstByte;
  if (!peer.secure) co_return true;
  auto secured = secure_socket(socket, *shared_->tls, peer.address.to_string());
  if (secured) peer.tls = std::move(secured->status);
  co_return secured.has_value();
}

boost::system::result<std::unique_ptr<HttpServer>, ListenError> HttpServer::start(
    const HttpAddress& address, HttpDoor door, asio::io_context& loop, const FindSource& source) {
  const std::string text = address.address.empty() ? "127.0.0.1" : address.address;
  boost::system::error_code ec;
  const tcp::endpoint endpoint(asio::ip::make_address(text, ec), address.port);
  if (ec) return ListenError{"parse", text, address.port, ec};
  std::unique_ptr<HttpServer> server(new HttpServer);
  const std::string scheme = door.tls ? "https://" : "http://";
  server->impl_ = std::make_unique<Impl>(std::move(door));
  if (const auto failed = server->impl_->listen(endpoint))
    return ListenError{"bind", text, address.port, failed};
  server->url_ = scheme + to_text(server->impl_->endpoint()) + "/";
  server->impl_->run(loop, source);
  return server;
}

HttpServer::~HttpServer() = default;

}  // namespace muster::http
