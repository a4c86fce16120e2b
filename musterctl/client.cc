#include "musterctl/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/net/connect_any.h"
#include "base/net/http_connection.h"
#include "base/system/clock.h"
#include "rendezvous/access/http_key.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster::ctl {

namespace asio = boost::asio;

namespace {

/// Runs `work` on `loop` until it is done.
template <typename T>
T run(asio::io_context& loop, asio::awaitable<T> work) {
  T result{};
  asio::co_spawn(loop, std::move(work), [&result](const std::exception_ptr& error, T value) {
    if (error) std::rethrow_exception(error);
    result = std::move(value);
  });
  loop.restart();
  loop.run();
  return result;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses look_up(const Endpoint& endpoint, std::string& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (failed != 0)
    error = std::string("cannot look up ") + endpoint.host + ": " + ::gai_strerror(failed);
  return Addresses(failed == 0 ? found : nullptr);
}

std::string numeric(const addrinfo& address) {
  char text[NI_MAXHOST] = "?";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

boost::system::error_code connect_to(const addrinfo* list, Instant deadline, asio::io_context& loop,
                                     asio::ip::tcp::socket& socket) {
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    asio::ip::tcp::endpoint& endpoint = endpoints.emplace_back();
    endpoint.resize(address->ai_addrlen);
    std::memcpy(endpoint.data(), address->ai_addr, address->ai_addrlen);
  }
  const auto error =
      run(loop, connect_any(socket, std::move(endpoints), deadline, asio::error::timed_out));
  if (!error) ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  return error;
}

ClientError failed(const Endpoint& endpoint, const std::string& what) {
  const std::string port = std::to_string(endpoint.port);
  return {"musterd's HTTP at " + endpoint.text() + ": " + what +
          ". Is it there (musterd --http), and is --endpoint or MUSTER_ENDPOINT right? From "
          "another machine: ssh -L " +
          port + ":localhost:" + port + " HOST"};
}

/// Something listens there that does not speak HTTP.
ClientError no_http(const Endpoint& endpoint, const std::string& what) {
  return {"musterd's HTTP at " + endpoint.text() + ": " + what +
          ". Is that the port where nodes meet (--port of musterd, 29400 if not given)? Give "
          "--endpoint or MUSTER_ENDPOINT the port of --http, mostly 9400"};
}

/// What an error says to people, as the system words it.
std::string text_of(const boost::system::error_code& error) {
  if (is_http_timeout(error)) return std::strerror(ETIMEDOUT);
  return is_http_too_long(error) ? std::strerror(EMSGSIZE) : error.message();
}

// One connection, for one request, or for two if musterd asks for a proof.
class Conversation {
 public:
  explicit Conversation(const Endpoint& endpoint, int within_seconds = kAnswerSeconds)
      : endpoint_(endpoint), deadline_(now() + std::chrono::seconds(within_seconds)) {}

  boost::system::result<HttpAnswer, ClientError> ask(HttpRequest request);
  /// Asks, and asks again with a proof of the token if musterd asks for one.
  boost::system::result<HttpAnswer, ClientError> ask_with_proof(HttpRequest request,
                                                                const TokenCrypto* token);

 private:
  std::string connect();
  ClientError failure(const boost::system::error_code& error) const;

  Endpoint endpoint_;
  Instant deadline_;
  asio::io_context loop_{1};
  HttpConnection http_{loop_.get_executor(),
                       {.head_bytes = kMaxHeadBytes,
                        .body_bytes = kMaxAnswerBytes,
                        .needs_length = true}};  // musterd always sends the length.
  std::shared_ptr<TlsStatus> tls_;               // Null: plain HTTP.
};

/// Connects. Returns why there is no connection; empty: connected.
std::string Conversation::connect() {
  std::string error;
  const Addresses addresses = look_up(endpoint_, error);
  if (!addresses) return error;
  if (const auto failed = connect_to(addresses.get(), deadline_, loop_, http_.socket()))
    return failed.message();
  if (!endpoint_.tls) return {};
  auto secured = secure_socket(http_.socket(), *endpoint_.tls, endpoint_.host);
  if (!secured) return "TLS: " + secured.error().message();
  tls_ = std::move(secured->status);
  return {};
}

/// Reports a failure of TLS if there is one: `error` then follows from it.
ClientError Conversation::failure(const boost::system::error_code& error) const {
  const TlsFailure failed_by = tls_ ? tls_->failure() : TlsFailure{};
  if (failed_by.kind != TlsFailure::Kind::None)
    return {"musterd's HTTP at " + endpoint_.text() + ": TLS: " + failed_by.reason};
  if (!is_no_http_reply(error)) return failed(endpoint_, text_of(error));
  return no_http(endpoint_, is_http_cut_off(error) && http_.has_head()
                                ? "the answer was cut off"
                                : "what answers is not musterd's HTTP");
}

boost::system::result<HttpAnswer, ClientError> Conversation::ask(HttpRequest request) {
  if (!http_.socket().is_open())
    if (const std::string error = connect(); !error.empty()) return failed(endpoint_, error);
  request.fields.emplace_back("Host", endpoint_.text());
  request.fields.emplace_back("User-Agent", "musterctl/" MUSTER_VERSION);
  auto reply = run(loop_, http_.exchange(std::move(request), deadline_));
  if (!reply) return failure(reply.error());
  HttpAnswer answer{.status = reply->status, .body = std::move(reply->body)};
  for (const std::string& challenge : reply->challenges)  // One of them is musterd's own.
    if (answer.nonce.empty()) answer.nonce = nonce_of(challenge);
  return answer;
}

boost::system::result<HttpAnswer, ClientError> Conversation::ask_with_proof(
    HttpRequest request, const TokenCrypto* token) {
  // No page of another origin can send this field. Without a token, musterd wants it for changes.
  request.fields.emplace_back("X-Muster-Action", "1");
  HttpRequest last = request;
  if (token != nullptr) {
    auto answer = ask(request);
    if (!answer || answer->status != 401 || answer->nonce.empty()) return answer;
    const ProvenRequest proven{
        .method = request.posts ? "POST" : "GET", .target = request.target, .nonce = answer->nonce};
    last.fields.emplace_back("Authorization",
                             "Muster proof=\"" + http_request_proof(*token, proven) + "\"");
  }
  last.fields.emplace_back("Connection", "close");
  auto answer = ask(std::move(last));
  if (answer) answer->token_refused = token != nullptr && answer->status == 401;
  return answer;
}

}  // namespace

boost::system::result<HttpAnswer, ClientError> get(const Endpoint& endpoint,
                                                   const std::string& target,
                                                   const TokenCrypto* token) {
  return Conversation(endpoint).ask_with_proof({.target = target}, token);
}

boost::system::result<HttpAnswer, ClientError> post(const Endpoint& endpoint,
                                                    const std::string& target,
                                                    const TokenCrypto* token, int within_seconds) {
  return Conversation(endpoint, within_seconds)
      .ask_with_proof({.posts = true, .target = target}, token);
}

Reach reach(const Endpoint& endpoint) {
  Reach found;
  const Addresses addresses = look_up(endpoint, found.error);
  if (!addresses) return found;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next)
    found.addresses.push_back(numeric(*one));
  const Instant begin = now();
  asio::io_context loop(1);
  asio::ip::tcp::socket socket(loop);
  const auto failure = connect_to(addresses.get(), begin + std::chrono::seconds(5), loop, socket);
  if (failure) found.error = "cannot connect: " + failure.message();
  found.connect_ms = std::chrono::duration<double, std::milli>(now() - begin).count();
  return found;
}

}  // namespace muster::ctl
