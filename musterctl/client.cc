#include "musterctl/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
#include "base/system/clock.h"
#include "rendezvous/access/http_key.h"

namespace muster::ctl {

namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool wait_for(int fd, short events, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd one{fd, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0) return errno = ETIMEDOUT, false;
    if (errno != EINTR) return false;
  }
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

// Null on failure; `error` then has the reason.
std::unique_ptr<Socket> connect_to(const addrinfo* list, Clock::time_point end,
                                   boost::system::error_code& error) {
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    asio::ip::tcp::endpoint& endpoint = endpoints.emplace_back();
    endpoint.resize(address->ai_addrlen);
    std::memcpy(endpoint.data(), address->ai_addr, address->ai_addrlen);
  }
  asio::io_context loop(1);
  asio::ip::tcp::socket socket(loop);
  asio::co_spawn(loop,
                 connect_any(socket, std::move(endpoints), now() + (end - Clock::now()),
                             asio::error::timed_out),
                 [&error](const std::exception_ptr& /*none*/, boost::system::error_code result) {
                   error = result;
                 });
  loop.run();
  if (error) return nullptr;
  const int fd = socket.release(error);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::make_unique<Socket>(fd);
}

bool send_all(const Socket& socket, std::string_view bytes, Clock::time_point end) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno != EAGAIN || !wait_for(socket.fd(), POLLOUT, end))
      return false;
  }
  return true;
}

// Receives until the answer is complete, or musterd closes the connection.
bool receive_all(const Socket& socket, std::string& bytes, Clock::time_point end) {
  char piece[16 << 10];
  std::size_t whole = 0;
  for (;;) {
    if (whole == 0) whole = answer_bytes(bytes);
    if (whole > kMaxAnswerBytes) return errno = EMSGSIZE, false;
    if (whole > 0 && bytes.size() >= whole) return true;
    if (Clock::now() >= end) return errno = ETIMEDOUT, false;
    const ssize_t got = ::recv(socket.fd(), piece, sizeof piece, 0);
    if (got == 0) return true;
    if (got > 0) {
      bytes.append(piece, static_cast<std::size_t>(got));
    } else if (errno != EAGAIN || !wait_for(socket.fd(), POLLIN, end)) {
      return false;
    }
  }
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

// One connection, for one request, or for two if musterd asks for a proof.
class Conversation {
 public:
  explicit Conversation(const Endpoint& endpoint, int within_seconds = kAnswerSeconds)
      : endpoint_(endpoint), end_(Clock::now() + std::chrono::seconds(within_seconds)) {}

  /// `head`: the first lines of the request's head, each with its line break.
  boost::system::result<HttpAnswer, ClientError> ask(const std::string& head);
  /// Asks, and asks again with a proof of the token if musterd asks for one.
  boost::system::result<HttpAnswer, ClientError> ask_with_proof(const std::string& method,
                                                                const std::string& target,
                                                                const TokenCrypto* token);

 private:
  std::string connect();
  ClientError failure(const std::string& what) const;

  Endpoint endpoint_;
  Clock::time_point end_;
  std::unique_ptr<Socket> socket_;
  std::shared_ptr<TlsStatus> tls_;  // Null: plain HTTP.
};

/// Connects. Returns why there is no connection; empty: connected.
std::string Conversation::connect() {
  std::string error;
  const Addresses addresses = look_up(endpoint_, error);
  if (!addresses) return error;
  boost::system::error_code failure;
  socket_ = connect_to(addresses.get(), end_, failure);
  if (!socket_) return failure.message();
  if (!endpoint_.tls) return {};
  auto joined = endpoint_.tls->join(OwnedFd(socket_->release()), endpoint_.host);
  if (!joined) return "TLS: " + joined.error().message();
  socket_ = std::make_unique<Socket>(joined->plain.release());
  tls_ = std::move(joined->status);
  return {};
}

/// Reports a failure of TLS instead of `what` if there is one: `what` then follows from it.
ClientError Conversation::failure(const std::string& what) const {
  const TlsFailure failed_by = tls_ ? tls_->failure() : TlsFailure{};
  if (failed_by.kind == TlsFailure::Kind::None) return failed(endpoint_, what);
  return {"musterd's HTTP at " + endpoint_.text() + ": TLS: " + failed_by.reason};
}

boost::system::result<HttpAnswer, ClientError> Conversation::ask(const std::string& head) {
  if (!socket_)
    if (const std::string error = connect(); !error.empty()) return failed(endpoint_, error);
  const std::string request =
      head + "Host: " + endpoint_.text() + "\r\nUser-Agent: musterctl/" MUSTER_VERSION "\r\n\r\n";
  std::string bytes;
  if (!send_all(*socket_, request, end_) || !receive_all(*socket_, bytes, end_))
    return failure(std::strerror(errno));
  auto answer = parse_answer(bytes);
  if (answer) return answer;
  const bool has_tls_failed = tls_ && tls_->failure().kind != TlsFailure::Kind::None;
  return has_tls_failed ? failure(answer.error().reason)
                        : no_http(endpoint_, answer.error().reason);
}

boost::system::result<HttpAnswer, ClientError> Conversation::ask_with_proof(
    const std::string& method, const std::string& target, const TokenCrypto* token) {
  // No page of another origin can send this field. Without a token, musterd wants it for changes.
  std::string head = method + " " + target + " HTTP/1.1\r\nX-Muster-Action: 1\r\n";
  if (method == "POST") head += "Content-Length: 0\r\n";
  if (token == nullptr) return ask(head + "Connection: close\r\n");
  auto answer = ask(head);
  if (!answer || answer->status != 401 || answer->nonce.empty()) return answer;
  const ProvenRequest proven{.method = method, .target = target, .nonce = answer->nonce};
  answer = ask(head + "Authorization: Muster proof=\"" + http_request_proof(*token, proven) +
               "\"\r\nConnection: close\r\n");
  if (answer) answer->token_refused = answer->status == 401;
  return answer;
}

}  // namespace

boost::system::result<HttpAnswer, ClientError> get(const Endpoint& endpoint,
                                                   const std::string& target,
                                                   const TokenCrypto* token) {
  return Conversation(endpoint).ask_with_proof("GET", target, token);
}

boost::system::result<HttpAnswer, ClientError> post(const Endpoint& endpoint,
                                                    const std::string& target,
                                                    const TokenCrypto* token, int within_seconds) {
  return Conversation(endpoint, within_seconds).ask_with_proof("POST", target, token);
}

Reach reach(const Endpoint& endpoint) {
  Reach found;
  const Addresses addresses = look_up(endpoint, found.error);
  if (!addresses) return found;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next)
    found.addresses.push_back(numeric(*one));
  const auto begin = Clock::now();
  boost::system::error_code failure;
  const auto socket = connect_to(addresses.get(), begin + std::chrono::seconds(5), failure);
  if (!socket) found.error = "cannot connect: " + failure.message();
  found.connect_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return found;
}

}  // namespace muster::ctl
