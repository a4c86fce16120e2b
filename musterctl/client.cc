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
#include <memory>
#include <utility>

#include "rendezvous/access/http_key.h"

namespace muster::ctl {
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

// Null on failure; errno has the reason.
std::unique_ptr<Socket> connect_to(const addrinfo& address, Clock::time_point end) {
  auto socket = std::make_unique<Socket>(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket->fd() < 0) return nullptr;
  if (::connect(socket->fd(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS || !wait_for(socket->fd(), POLLOUT, end)) return nullptr;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return socket;
  errno = error;
  return nullptr;
}

std::unique_ptr<Socket> connect_any(const addrinfo* list, Clock::time_point end) {
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    // Each address gets half of the time that is left, the last one all of it.
    const auto share = address->ai_next == nullptr ? end : Clock::now() + (end - Clock::now()) / 2;
    if (auto socket = connect_to(*address, share)) return socket;
  }
  return nullptr;
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
  return {"musterd's HTTP at " + endpoint.text() + ": " + what +
          ". Is it there (musterd --http), and is --endpoint or MUSTER_ENDPOINT right? From "
          "another machine: ssh -L 9400:localhost:9400 HOST"};
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
  socket_ = connect_any(addresses.get(), end_);
  if (!socket_) return std::strerror(errno);
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
  if (!answer) return failure(answer.error().reason);
  return answer;
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
  const auto socket = connect_any(addresses.get(), begin + std::chrono::seconds(5));
  if (!socket) found.error = std::string("cannot connect: ") + std::strerror(errno);
  found.connect_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return found;
}

}  // namespace muster::ctl
