#include "rendezvous/state/etcd/etcd_client.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "base/check.h"
#include "base/net/bounded_work.h"
#include "base/net/connect_any.h"
#include "base/net/http_connection.h"
#include "base/net/name_lookup.h"
#include "base/printable_text.h"
#include "base/system/clock.h"
#include "rendezvous/access/token_file.h"
#include "rendezvous/state/etcd/etcd_json.h"
#include "rendezvous/state/etcd/etcd_login.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// A name server that is away costs a second or two before the next one is asked.
constexpr Duration kNameLeast = std::chrono::seconds(2);

/// Whether every other member would give the same error.
bool is_same_elsewhere(const EtcdError& error) {
  return error.refused || error.too_long;
}

/// Turns on TCP keep-alive: a machine that vanishes does not close its connection, and a watch may
/// be silent for long. Also turns off Nagle's algorithm.
void enable_keep_alive(tcp::socket& socket) {
  const int socket_fd = socket.native_handle();
  const int on = 1;
  const int idle_s = 2;
  const int between_s = 1;
  const int probes = 3;
  ::setsockopt(socket_fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket_fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket_fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  ::setsockopt(socket_fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

HttpRequest request_of(const EtcdMember& member, const std::string& token, const std::string& path,
                       const std::string& body) {
  HttpRequest request{.posts = true, .target = path, .body = body};
  request.fields = {{"Host", to_text(member)}, {"Content-Type", "application/json"}};
  // With this header a member that has no leader ends a watch. Without it the watch would wait
  // without an end (etcd's WithRequireLeader).
  request.fields.emplace_back("Grpc-Metadata-hasleader", "true");
  if (!token.empty()) request.fields.emplace_back("Authorization", token);
  return request;
}

}  // namespace

struct EtcdChannel::Wire {
  explicit Wire(const asio::any_io_executor& executor)
      : http(executor, {.body_bytes = kMaxEtcdReplyBytes}) {}
  HttpConnection http;
  std::shared_ptr<TlsStatus> tls;  // Null: plain HTTP.
  bool has_answered = false;
};

EtcdChannel::EtcdChannel(asio::any_io_executor executor, EtcdPeersPtr peers)
    : executor_(std::move(executor)), peers_(std::move(peers)) {
  MUSTER_CHECK(!peers_->members.empty());
  // When a member fails, the name of the next one must be known.
  for (const EtcdMember& each : peers_->members)
    begin_look_up(executor_, each.host);
}

EtcdChannel::~EtcdChannel() = default;

EtcdError EtcdChannel::failed(const std::string& why) const {
  return {"etcd member " + to_text(member()) + ": " + why, false};
}

EtcdError EtcdChannel::broken(const error_code& ec) const {
  const TlsFailure failure = wire_ && wire_->tls ? wire_->tls->failure() : TlsFailure{};
  if (failure.kind != TlsFailure::Kind::None) {
    EtcdError error = failed("TLS: " + failure.reason);
    error.tls_refused = failure.kind == TlsFailure::Kind::Refused;
    return error;
  }
  if (is_http_too_long(ec)) {
    EtcdError error =
        failed("its answer is longer than " + std::to_string(kMaxEtcdReplyBytes) + " bytes");
    error.too_long = true;
    return error;
  }
  if (is_http_closed(ec) && wire_ && !wire_->tls && !wire_->has_answered)
    return failed(
        "it has closed the connection; if it speaks TLS, the CA of its certificate must be given");
  return failed(ec.message());
}

void EtcdChannel::next_member() {
  wire_.reset();
  current_ = (current_ + 1) % peers_->members.size();
}

/// The look-up has a time of its own.
asio::awaitable<EtcdResult<void>> EtcdChannel::connect(Duration limit) {
  std::string host = member().host;
  const NameLookup found = co_await look_up(std::move(host), std::max(limit, kNameLeast));
  if (found.error) co_return failed(found.error.message());
  co_await renew_tls();
  connecting_since_ = now();
  const Instant deadline = connecting_since_ + limit;
  auto wire = std::make_unique<Wire>(executor_);
  auto endpoints = endpoints_of(found.addresses, member().port);
  error_code ec =
      co_await connect_any(wire->http.socket(), std::move(endpoints), deadline, http_timeout());
  if (ec) co_return failed(ec.message());
  enable_keep_alive(wire->http.socket());
  const auto own = wire->http.socket().local_endpoint(ec).address();
  if (!ec) own_address_ = {own.to_string(), own.is_loopback(), member().host};
  if (peers_->tls) {
    // The handshake runs while the first request is sent, within the time limit of that request.
    auto secured = secure_socket(wire->http.socket(), *peers_->tls, member().host);
    if (!secured) co_return failed("TLS: " + secured.error().message());
    wire->tls = std::move(secured->status);
  }
  wire_ = std::move(wire);
  co_return EtcdResult<void>();
}

asio::awaitable<EtcdResult<std::string>> EtcdChannel::exchange(const std::string& path,
                                                               const std::string& body,
                                                               Duration limit) {
  const Instant looked_up = now();
  if (!wire_)
    if (const auto connected = co_await connect(limit); !connected) co_return connected.error();
  const Instant deadline = std::max(looked_up, connecting_since_) + limit;
  HttpRequest request = request_of(member(), peers_->token, path, body);
  auto reply = co_await wire_->http.exchange(std::move(request), deadline);
  if (!reply) co_return broken(reply.error());
  wire_->has_answered = true;
  if (!reply->keep_alive) wire_.reset();
  if (reply->status == 200) co_return std::move(reply->body);
  const EtcdRefusal refusal = decode_etcd_refusal(reply->body);
  EtcdError error = failed(refusal.text.empty() ? "it answers HTTP " + std::to_string(reply->status)
                                                : printable_text(refusal.text));
  error.refused = !may_pass(refusal);
  error.token_refused = is_token_refused(refusal);
  co_return error;
}

asio::awaitable<void> EtcdChannel::renew_tls() {
  const auto files = peers_->tls_files;
  if (!peers_->tls || !files) co_return;
  const auto context = std::make_shared<SharedTlsContext>();
  std::function<void()> work = [files, context] {
    if (auto read = make_tls_context(TlsSide::Client, files->files)) *context = *std::move(read);
  };
  const bool was_read = co_await reread_in_time(files->reading, std::move(work));
  if (was_read && *context) peers_->tls->renew(*context);
}

asio::awaitable<void> EtcdChannel::renew_password() {
  if (peers_->login.password_file.empty()) co_return;
  const auto password = std::make_shared<std::string>();
  std::function<void()> work = [password, file = peers_->login.password_file] {
    if (auto read = read_secret_line(file, kMaxEtcdPasswordBytes)) *password = *std::move(read);
  };
  const bool was_read = co_await reread_in_time(peers_->reading_password, std::move(work));
  if (was_read && !password->empty()) peers_->login.password = *password;
}

/// Gets a token for the user. etcd accepts the password only for this request, and the token is
/// valid for some minutes.
asio::awaitable<EtcdResult<void>> EtcdChannel::authenticate(Duration limit) {
  co_await renew_password();
  const std::string path = "/v3/auth/authenticate";
  const std::string body = encode_authenticate(peers_->login.user, peers_->login.password);
  const auto answer = co_await exchange(path, body, limit);
  if (!answer) co_return answer.error();
  auto token = decode_authenticated(*answer);
  if (!token) co_return failed("it gives no token: " + token.error().reason);
  peers_->token = *std::move(token);
  co_return EtcdResult<void>();
}

asio::awaitable<EtcdResult<std::string>> EtcdChannel::exchange_with_token(const std::string& path,
                                                                          const std::string& body,
                                                                          Duration limit) {
  if (peers_->login.user.empty()) co_return co_await exchange(path, body, limit);
  for (bool again = false;; again = true) {
    if (peers_->token.empty())
      if (const auto done = co_await authenticate(limit); !done) co_return done.error();
    const std::string token = peers_->token;
    auto answer = co_await exchange(path, body, limit);
    if (answer || !answer.error().token_refused) co_return answer;
    if (peers_->token == token) peers_->token.clear();
    if (again) co_return answer;
  }
}

asio::awaitable<EtcdResult<std::string>> EtcdChannel::ask(std::string path, std::string body,
                                                          Duration per_member) {
  std::string reasons;
  bool all_refuse_tls = true;
  for (std::size_t i = 0; i < peers_->members.size(); ++i) {
    const bool was_open = wire_ != nullptr;
    const Instant begun = now();
    auto answer = co_await exchange_with_token(path, body, per_member);
    // An idle connection may have been closed meanwhile. That does not mean that the member is
    // down: it is tried once more on a new connection.
    const bool at_once = now() - begun < per_member / 2;
    if (!answer && !is_same_elsewhere(answer.error()) && was_open && at_once) {
      wire_.reset();
      answer = co_await exchange_with_token(path, body, per_member);
    }
    if (!answer && answer.error().too_long) wire_.reset();  // The rest of the answer is not read.
    if (answer || is_same_elsewhere(answer.error())) co_return answer;
    reasons += (reasons.empty() ? "" : "; ") + answer.error().text;
    all_refuse_tls = all_refuse_tls && answer.error().tls_refused;
    next_member();
  }
  co_return EtcdError(std::move(reasons), all_refuse_tls);
}

asio::awaitable<EtcdResult<bool>> EtcdChannel::watch(std::string body, Duration per_member,
                                                     Duration at_most) {
  wire_.reset();
  if (const auto connected = co_await connect(per_member); !connected) {
    const EtcdError error = connected.error();
    next_member();
    co_return error;
  }
  if (!peers_->login.user.empty() && peers_->token.empty())
    if (const auto done = co_await authenticate(per_member); !done) co_return done.error();
  if (!wire_) co_return failed("it has closed the connection");
  HttpRequest request = request_of(member(), peers_->token, "/v3/watch", body);
  const error_code error = co_await wire_->http.send(std::move(request), now() + per_member);
  EtcdResult<bool> news = error ? EtcdResult<bool>(broken(error)) : true;
  if (!error) news = co_await read_watch(at_most);
  if (news)
    wire_.reset();  // Closes the connection: the watch would go on sending on it.
  else
    next_member();
  co_return news;
}

/// Reads the messages of a watch: one line of JSON each, in an HTTP body without an end.
asio::awaitable<EtcdResult<bool>> EtcdChannel::read_watch(Duration at_most) {
  const Instant deadline = now() + at_most;
  std::string text;
  for (bool header_is_read = false;;) {
    const auto part = co_await wire_->http.read_part(deadline);
    if (!part && is_http_timeout(part.error())) {
      if (header_is_read) co_return false;
      co_return failed("it does not answer a watch");
    }
    if (!part) co_return broken(part.error());
    header_is_read = part->status != 0;
    if (header_is_read && part->status != 200)
      co_return failed("it answers HTTP " + std::to_string(part->status) + " to a watch");
    text += part->body;
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      const auto news = decode_watch(std::string_view(text).substr(0, end));
      if (!news) co_return failed(news.error().reason);
      if (is_token_refused({.text = news->cancelled})) {
        peers_->token.clear();
        co_return failed(news->cancelled);
      }
      if (news->has_events || !news->cancelled.empty()) co_return true;
      text.erase(0, end + 1);
    }
    if (text.size() > kMaxEtcdWatchLine) co_return failed("a message of a watch is too long");
    if (part->is_last) co_return failed("it has ended the watch");
  }
}

}  // namespace muster
