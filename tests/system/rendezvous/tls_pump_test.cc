// Two TLS pumps, one at each end of a local TCP connection, and the plain sockets behind them.

#include "rendezvous/tls/tls_pump.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/certificates.h"

namespace muster {
namespace {

constexpr int kPatienceMs = 60'000;

bool ready(int fd, short events, int within_ms = kPatienceMs) {
  pollfd one{fd, events, 0};
  return ::poll(&one, 1, within_ms) == 1;
}

/// Both ends of a TCP connection.
std::pair<OwnedFd, OwnedFd> tcp_pair() {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  const OwnedFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
  OwnedFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(client.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
  OwnedFd server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(server.get() >= 0);
  return {std::move(client), std::move(server)};
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    REQUIRE(ready(fd, POLLOUT));
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) continue;
    REQUIRE(sent > 0);
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

/// Reads until `most` bytes have come or the other end has closed.
std::string read_up_to(int fd, std::size_t most) {
  std::string bytes;
  std::array<char, 65536> piece;
  while (bytes.size() < most && ready(fd, POLLIN)) {
    const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) break;
    bytes.append(piece.data(), static_cast<std::size_t>(got));
  }
  return bytes;
}

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes)
    byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

struct Pumps {
  testing::Certificates certificates;
  std::mutex mutex;
  std::vector<std::string> failures;  // Protected by the mutex.
  TlsPump server{*make_tls_context(TlsSide::Server, certificates.files("server", "")),
                 [this](const std::string& peer, const TlsFailure& failure) {
                   const std::lock_guard lock(mutex);
                   failures.push_back(peer + ": " + failure.reason);
                 }};
  TlsPump client{*make_tls_context(TlsSide::Client, certificates.files("", "ca"))};

  std::pair<TlsConnection, TlsConnection> join(const std::string& host = "localhost") {
    auto [near, far] = tcp_pair();
    auto at_client = client.join(std::move(near), host);
    auto at_server = server.join(std::move(far), "127.0.0.1");
    REQUIRE(at_client.has_value());
    REQUIRE(at_server.has_value());
    return {std::move(*at_client), std::move(*at_server)};
  }
  std::string failure_at_server() {
    for (int i = 0; i < kPatienceMs / 10; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (!failures.empty()) return failures.front();
      }
      ::poll(nullptr, 0, 10);
    }
    return "none";
  }
};

using Catch::Matchers::Contains;

TEST_CASE_METHOD(Pumps, "tls pump: bytes go both ways at once, more than any buffer has room for",
                 "[threads][tls]") {
  const auto [near, far] = join();
  const std::string up = pattern(3'000'000);
  const std::string down = pattern(5'000'000);
  std::thread writes_up([&, fd = near.plain.get()] { write_all(fd, up); });
  std::thread writes_down([&, fd = far.plain.get()] { write_all(fd, down); });
  std::string got_up;
  std::thread reads_up([&, fd = far.plain.get()] { got_up = read_up_to(fd, up.size()); });
  const std::string got_down = read_up_to(near.plain.get(), down.size());
  for (std::thread* each : {&writes_up, &writes_down, &reads_up})
    each->join();
  CHECK(got_up == up);
  CHECK(got_down == down);
  CHECK(near.status->failure().kind == TlsFailure::Kind::None);
}

TEST_CASE_METHOD(Pumps, "tls pump: a reader that does not read stops the writer",
                 "[threads][tls]") {
  const auto [near, far] = join();
  const std::string piece(65536, 'x');
  std::size_t sent = 0;
  // TCP's own buffers take some MB. Without backpressure the loop would run to its limit.
  while (sent < (std::size_t{256} << 20) && ready(near.plain.get(), POLLOUT, 2'000)) {
    const ssize_t more = ::send(near.plain.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (more > 0) sent += static_cast<std::size_t>(more);
  }
  CHECK(sent < (std::size_t{64} << 20));
  CHECK(read_up_to(far.plain.get(), sent).size() == sent);  // Nothing is lost.
}

TEST_CASE_METHOD(Pumps, "tls pump: bytes that were written before the close arrive",
                 "[threads][tls]") {
  auto [near, far] = join();
  const std::string bytes = pattern(100'000);
  write_all(near.plain.get(), "a");
  REQUIRE(read_up_to(far.plain.get(), 1) == "a");  // The handshake is done.
  write_all(near.plain.get(), bytes);
  near.plain.reset();
  CHECK(read_up_to(far.plain.get(), bytes.size() + 1) == bytes);
  CHECK(far.status->failure().kind == TlsFailure::Kind::None);
}

TEST_CASE_METHOD(Pumps, "tls pump: bytes that were written before the pump ends arrive",
                 "[threads][tls]") {
  auto [tcp, far_tcp] = tcp_pair();
  const auto far = server.join(std::move(far_tcp), "127.0.0.1");
  REQUIRE(far.has_value());
  const std::string bytes = pattern(100'000);
  {
    TlsPump ends(client.context());
    const auto near = ends.join(std::move(tcp), "localhost");
    REQUIRE(near.has_value());
    write_all(near->plain.get(), "a");
    REQUIRE(read_up_to(far->plain.get(), 1) == "a");  // The handshake is done.
    write_all(near->plain.get(), bytes);
  }
  CHECK(read_up_to(far->plain.get(), bytes.size() + 1) == bytes);
}

TEST_CASE_METHOD(
    Pumps, "tls pump: the connection to a refused server is closed, and both sides have the reason",
    "[threads][tls]") {
  const auto [near, far] = join("elsewhere.example.org");
  constexpr std::string_view kUnsent = "must not be sent";
  // The pump may have refused the server already, and closed its end.
  const ssize_t sent = ::send(near.plain.get(), kUnsent.data(), kUnsent.size(), MSG_NOSIGNAL);
  CHECK((sent == static_cast<ssize_t>(kUnsent.size()) || (sent < 0 && errno == EPIPE)));
  CHECK(read_up_to(near.plain.get(), 1).empty());
  CHECK(near.status->failure().kind == TlsFailure::Kind::Refused);
  CHECK_THAT(near.status->failure().reason, Contains("not for elsewhere.example.org"));
  CHECK(read_up_to(far.plain.get(), 1).empty());
  CHECK_THAT(failure_at_server(), Contains("127.0.0.1: it refuses this side's certificate"));
}

TEST_CASE_METHOD(Pumps, "tls pump: a server without TLS gets no data", "[threads][tls]") {
  auto [near, far] = tcp_pair();
  const auto joined = client.join(std::move(near), "localhost");
  REQUIRE(joined.has_value());
  write_all(joined->plain.get(), "a secret");
  write_all(far.get(), "HTTP/1.1 400 Bad Request\r\n\r\n");
  CHECK(read_up_to(joined->plain.get(), 1).empty());
  CHECK(joined->status->failure().kind == TlsFailure::Kind::Refused);
  CHECK(read_up_to(far.get(), 100'000).find("secret") == std::string::npos);
}

TEST_CASE_METHOD(Pumps, "tls pump: existing connections continue after a renewal",
                 "[threads][tls]") {
  const auto [near, far] = join();
  write_all(near.plain.get(), "a");
  CHECK(read_up_to(far.plain.get(), 1) == "a");
  server.renew(*make_tls_context(TlsSide::Server, certificates.files("strange", "")));
  write_all(near.plain.get(), "b");
  CHECK(read_up_to(far.plain.get(), 1) == "b");
  const auto [later, ignored] = join();
  CHECK(read_up_to(later.plain.get(), 1).empty());
  CHECK_THAT(later.status->failure().reason, Contains("not signed by this side's CA"));
}

TEST_CASE_METHOD(Pumps, "tls pump: handshakes of one address beyond the limit wait for their turn",
                 "[threads][tls]") {
  std::vector<std::pair<TlsConnection, TlsConnection>> all;
  for (std::size_t i = 0; i < 3 * kMaxTlsHandshakesPerAddress; ++i)
    all.push_back(join());
  for (const auto& [near, far] : all)
    write_all(near.plain.get(), "x");
  for (const auto& [near, far] : all)
    CHECK(read_up_to(far.plain.get(), 1) == "x");
}

/// The first bytes of a client.
std::string client_hello(Pumps& pumps) {
  auto [near, far] = tcp_pair();
  const auto at_client = pumps.client.join(std::move(near), "localhost");
  REQUIRE(at_client.has_value());
  REQUIRE(ready(far.get(), POLLIN));
  std::array<char, 4096> bytes{};
  const ssize_t got = ::recv(far.get(), bytes.data(), bytes.size(), 0);
  REQUIRE(got > 100);
  return {bytes.data(), static_cast<std::size_t>(got)};
}

TEST_CASE_METHOD(Pumps, "tls pump: clients that have gone cost no handshake, and are reported",
                 "[threads][tls]") {
  const std::string hello = client_hello(*this);
  constexpr std::size_t kGone = 150;
  std::vector<TlsConnection> ends;
  for (std::size_t i = 0; i < kGone; ++i) {
    auto [near, far] = tcp_pair();
    write_all(near.get(), hello);
    near.reset();
    auto joined = server.join(std::move(far), "127.0.0." + std::to_string(1 + i % 200));
    REQUIRE(joined.has_value());
    ends.push_back(std::move(*joined));
  }
  for (const TlsConnection& end : ends) {
    CHECK(read_up_to(end.plain.get(), 1).empty());
    CHECK_THAT(end.status->failure().reason, Contains("gone before its TLS handshake"));
  }
  const std::lock_guard lock(mutex);
  CHECK(failures.size() == kGone);
}

TEST_CASE_METHOD(Pumps, "tls pump: clients that do not go on do not keep others waiting",
                 "[threads][tls]") {
  const std::string hello = client_hello(*this);
  std::vector<OwnedFd> silent;
  std::vector<TlsConnection> ends;
  for (std::size_t i = 0; i < 3 * kMaxTlsHandshakesAtOnce; ++i) {
    auto [near, far] = tcp_pair();
    // Some have sent half of their first message, and the others wait after the server's answer.
    write_all(near.get(), hello.substr(0, i % 2 == 0 ? 50 : hello.size()));
    auto joined = server.join(std::move(far), "10.0.0." + std::to_string(1 + i));
    REQUIRE(joined.has_value());
    ends.push_back(std::move(*joined));
    silent.push_back(std::move(near));
  }
  const auto [near, far] = join();
  write_all(near.plain.get(), "x");
  CHECK(ready(far.plain.get(), POLLIN, 8'000));
}

}  // namespace
}  // namespace muster
