#include "musterctl/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/wire/http_key.h"
#include "rendezvous/wire/percent.h"

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

// Null: errno says why.
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
    // The last one may take all the time that is left.
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

// Until the answer is whole, or the other end closes.
bool receive_all(const Socket& socket, std::string& bytes, Clock::time_point end) {
  char piece[16 << 10];
  std::size_t whole = 0;
  for (;;) {
    if (whole == 0) whole = answer_bytes(bytes);
    if (whole > 0 && bytes.size() >= whole) return true;
    const ssize_t got = ::recv(socket.fd(), piece, sizeof piece, 0);
    if (got == 0) return true;
    if (got > 0) {
      bytes.append(piece, static_cast<std::size_t>(got));
      if (bytes.size() > kMaxAnswerBytes) return errno = EMSGSIZE, false;
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

}  // namespace

std::string Endpoint::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

boost::system::result<Endpoint, ClientError> parse_endpoint(std::string_view text) {
  const ClientError wrong{"'" + std::string(text.substr(0, 200)) +
                          "' is not HOST:PORT, as in localhost:9400 or [::1]:9400"};
  for (const std::string_view scheme : {"http://", "https://"})
    if (text.starts_with(scheme)) text.remove_prefix(scheme.size());
  if (text.ends_with('/')) text.remove_suffix(1);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  Endpoint endpoint;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  const bool bad_port = parsed.ec != std::errc() || parsed.ptr != port.data() + port.size();
  const bool bad_host = host.empty() || host.find('/') != std::string_view::npos ||
                        (!brackets && host.find(':') != std::string_view::npos);
  if (bad_port || bad_host || endpoint.port == 0) return wrong;
  endpoint.host = host;
  return endpoint;
}

namespace {

// The head of an answer in small letters, with its last line break; empty: it is not whole yet.
std::string head_of(std::string_view bytes) {
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return {};
  std::string head(bytes.substr(0, end + 2));
  std::transform(head.begin(), head.end(), head.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return head;
}

// The length of the body; nothing if the head does not have it.
std::optional<std::size_t> body_bytes(const std::string& head) {
  constexpr std::string_view kLength = "\r\ncontent-length: ";
  const std::size_t found = head.find(kLength);
  if (found == std::string::npos) return std::nullopt;
  std::size_t length = 0;
  const char* digits = head.data() + found + kLength.size();
  if (std::from_chars(digits, head.data() + head.size(), length).ec != std::errc())
    return std::nullopt;
  return length;
}

// musterd's nonces are digits and small letters: the head in small letters has them as they are.
std::string nonce_of(const std::string& head) {
  constexpr std::string_view kField = "\r\nwww-authenticate: muster nonce=\"";
  const std::size_t found = head.find(kField);
  if (found == std::string::npos) return {};
  const std::size_t begin = found + kField.size();
  const std::size_t end = head.find_first_not_of("0123456789abcdef", begin);
  return end != std::string::npos && head[end] == '"' ? head.substr(begin, end - begin)
                                                      : std::string();
}

}  // namespace

std::size_t answer_bytes(std::string_view bytes) {
  const std::string head = head_of(bytes);
  const auto body = head.empty() ? std::nullopt : body_bytes(head);
  return body && *body <= kMaxAnswerBytes ? head.size() + 2 + *body : 0;
}

boost::system::result<HttpAnswer, ClientError> parse_answer(std::string_view bytes) {
  const ClientError strange{"what answers is not musterd's HTTP"};
  const std::string head = head_of(bytes);
  if (head.empty() || !bytes.starts_with("HTTP/1.") || bytes.size() < 12) return strange;
  HttpAnswer answer;
  const std::string_view code = bytes.substr(9, 3);
  if (std::from_chars(code.data(), code.data() + 3, answer.status).ptr != code.data() + 3)
    return strange;
  const auto length = body_bytes(head);
  if (!length) return strange;  // Not what musterd sends.
  answer.body = bytes.substr(head.size() + 2);
  if (answer.body.size() < *length) return ClientError{"the answer was cut off"};
  answer.body.resize(*length);
  answer.nonce = nonce_of(head);
  return answer;
}

namespace {

// One connection for one answer, or for two where musterd asks for a proof.
class Conversation {
 public:
  explicit Conversation(const Endpoint& endpoint, int within_seconds = kAnswerSeconds)
      : endpoint_(endpoint), end_(Clock::now() + std::chrono::seconds(within_seconds)) {}

  /// `head`: the request's first lines, each with its line break.
  boost::system::result<HttpAnswer, ClientError> ask(const std::string& head);
  /// As somebody who may change the run: with a proof of the token if musterd asks for one.
  boost::system::result<HttpAnswer, ClientError> ask_as_operator(const std::string& method,
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

/// Empty, or why there is no connection.
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

/// What TLS says about it comes first: the rest follows from that.
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

boost::system::result<HttpAnswer, ClientError> Conversation::ask_as_operator(
    const std::string& method, const std::string& target, const TokenCrypto* token) {
  std::string head = method + " " + target + " HTTP/1.1\r\nX-Muster-Action: 1\r\n";
  if (method == "POST") head += "Content-Length: 0\r\n";
  auto answer = ask(head);
  if (!answer || answer->status != 401 || answer->nonce.empty() || token == nullptr) return answer;
  const HttpChange change{.method = method, .target = target, .nonce = answer->nonce};
  return ask(head + "Authorization: Muster proof=\"" + http_change_proof(*token, change) +
             "\"\r\nConnection: close\r\n");
}

}  // namespace

boost::system::result<HttpAnswer, ClientError> get(const Endpoint& endpoint,
                                                   const std::string& target,
                                                   const TokenCrypto* token, Asks as) {
  if (as == Asks::AsOperator) return Conversation(endpoint).ask_as_operator("GET", target, token);
  std::string head = "GET " + target + " HTTP/1.1\r\nConnection: close\r\n";
  if (token != nullptr) head += "Authorization: Bearer " + http_read_key(*token) + "\r\n";
  return Conversation(endpoint).ask(head);
}

boost::system::result<HttpAnswer, ClientError> post(const Endpoint& endpoint,
                                                    const std::string& target,
                                                    const TokenCrypto* token, int within_seconds) {
  return Conversation(endpoint, within_seconds).ask_as_operator("POST", target, token);
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

std::string percent_encoded(std::string_view text) {
  return percent_encode(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace muster::ctl
