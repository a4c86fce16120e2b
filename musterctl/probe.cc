#include "musterctl/probe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "musterctl/interfaces.h"
#include "musterctl/peer_wire.h"

namespace muster::ctl {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

using AsyncError = asio::awaitable<error_code>;

// The first pings warm up the connection. An odd number of pings has one in the middle.
constexpr int kPings = 21;

const error_code kNotTheDoctor = make_error_code(boost::system::errc::protocol_error);
const error_code kTooLate = make_error_code(boost::system::errc::timed_out);

WallNanoseconds wall_nanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

AsyncError within(tcp::socket& socket, int seconds, AsyncError work) {
  asio::steady_timer limit(socket.get_executor(), std::chrono::seconds(seconds));
  const auto done = co_await (std::move(work) || limit.async_wait(kNoThrow));
  const auto* ec = std::get_if<0>(&done);
  co_return ec != nullptr ? *ec : kTooLate;
}

AsyncError read_bytes(tcp::socket& socket, std::string& bytes) {
  auto [ec, got] = co_await asio::async_read(socket, asio::buffer(bytes), kNoThrow);
  co_return ec;
}

AsyncError write_bytes(tcp::socket& socket, const std::string& bytes) {
  auto [ec, sent] = co_await asio::async_write(socket, asio::buffer(bytes), kNoThrow);
  co_return ec;
}

/// The client of a test: the node that connects.
class Prober {
 public:
  Prober(const asio::any_io_executor& executor, ProbeTarget target)
      : socket_(executor), target_(std::move(target)) {
    result_.to = target_.address;
    result_.port = target_.port;
  }

  asio::awaitable<Probe> run();

 private:
  AsyncError connect();
  AsyncError greet();
  AsyncError ping();
  AsyncError send();
  AsyncError receive();
  bool finish_stage(ProbeStage next, const error_code& ec);
  void sample_socket();
  int option(int level, int name);

  tcp::socket socket_;
  ProbeTarget target_;
  Probe result_;
};

/// Ends a stage. Returns whether the test goes on; `next` is the stage that begins then.
bool Prober::finish_stage(ProbeStage next, const error_code& ec) {
  sample_socket();
  if (!ec) {
    result_.stage = next;
    return true;
  }
  if (ec == kTooLate)
    result_.error = "no answer in time";
  else if (ec == kNotTheDoctor)
    result_.error = "what answers there is not the doctor of this run";
  else if (ec == asio::error::eof)
    result_.error = "the connection was closed";
  else
    result_.error = ec.message();
  return false;
}

asio::awaitable<Probe> Prober::run() {
  struct Step {
    AsyncError (Prober::*work)();
    int seconds;
    ProbeStage next;
  };
  static constexpr Step kSteps[] = {
      {&Prober::connect, kConnectSeconds, ProbeStage::Greeting},
      {&Prober::greet, kPingSeconds, ProbeStage::Pings},
      {&Prober::ping, kPingSeconds, ProbeStage::Sending},
      {&Prober::send, kDataSeconds, ProbeStage::Receiving},
      {&Prober::receive, kDataSeconds, ProbeStage::Done},
  };
  for (const Step& one : kSteps) {
    auto work = (this->*one.work)();
    const error_code ec = co_await within(socket_, one.seconds, std::move(work));
    if (!finish_stage(one.next, ec)) break;
  }
  co_return result_;
}

AsyncError Prober::connect() {
  error_code ec;
  const auto address = asio::ip::make_address(target_.address, ec);
  if (ec) co_return ec;
  const tcp::endpoint endpoint(address, target_.port);
  socket_.open(endpoint.protocol(), ec);
  if (ec) co_return ec;
  socket_.set_option(tcp::no_delay(true), ec);
  const auto own = asio::ip::make_address(target_.own_address, ec);
  if (!ec && own.is_v4() == address.is_v4()) {
    socket_.bind(tcp::endpoint(own, 0), ec);
    if (ec) co_return ec;
  }
  auto [connect_error] = co_await socket_.async_connect(endpoint, kNoThrow);
  co_return connect_error;
}

AsyncError Prober::greet() {
  const std::string greeting = probe_greeting(target_.secret, target_.own_rank);
  if (const error_code ec = co_await write_bytes(socket_, greeting); ec) co_return ec;
  std::string welcome(kWelcomeBytes, '\0');
  if (const error_code ec = co_await read_bytes(socket_, welcome); ec) co_return ec;
  co_return is_welcome_of(welcome, target_.rank) ? error_code() : kNotTheDoctor;
}

AsyncError Prober::ping() {
  const std::string ping(1, kPing);
  std::string pong(kPongBytes, '\0');
  std::vector<double> took_ms;
  for (int i = 0; i < kPings; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    PingTimes times{.sent = wall_nanoseconds()};
    if (const error_code ec = co_await write_bytes(socket_, ping); ec) co_return ec;
    if (const error_code ec = co_await read_bytes(socket_, pong); ec) co_return ec;
    const auto took = std::chrono::steady_clock::now() - begin;
    times.back = wall_nanoseconds();
    if (!read_pong(pong, times)) co_return kNotTheDoctor;
    const double ms = std::chrono::duration<double, std::milli>(took).count();
    // The fastest answer gives the best estimate of the clocks' difference.
    if (took_ms.empty() || ms < *std::min_element(took_ms.begin(), took_ms.end()))
      result_.ahead_seconds = ahead_seconds(times);
    took_ms.push_back(ms);
  }
  const auto middle = took_ms.begin() + kPings / 2;
  std::nth_element(took_ms.begin(), middle, took_ms.end());
  result_.latency_ms = *middle;
  co_return error_code();
}

AsyncError Prober::send() {
  std::string data(1 + kProbeBytes, '\0');
  data.front() = kData;
  if (const error_code ec = co_await write_bytes(socket_, data); ec) co_return ec;
  std::string arrived(1, '\0');
  if (const error_code ec = co_await read_bytes(socket_, arrived); ec) co_return ec;
  co_return arrived.front() == kArrived ? error_code() : kNotTheDoctor;
}

AsyncError Prober::receive() {
  std::string data(kProbeBytes, '\0');
  co_return co_await read_bytes(socket_, data);
}

int Prober::option(int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket_.native_handle(), level, name, &value, &size) == 0 ? value : 0;
}

// Called after each stage: the kernel may have learned of a smaller MTU on the path.
void Prober::sample_socket() {
  error_code not_connected;
  const tcp::endpoint own = socket_.local_endpoint(not_connected);
  if (not_connected || own.address().is_unspecified()) return;
  result_.from = own.address().to_string();
  result_.interface = interface_of(result_.from, local_interfaces());
  result_.interface_mtu = interface_mtu(result_.interface);
  result_.path_mtu =
      own.address().is_v4() ? option(IPPROTO_IP, IP_MTU) : option(IPPROTO_IPV6, IPV6_MTU);
  result_.segment = option(IPPROTO_TCP, TCP_MAXSEG);
}

/// Answers a client that has sent the secret, until it closes the connection.
AsyncError answer_requests(tcp::socket& socket) {
  std::string asked(1, '\0');
  for (;;) {
    if (const error_code ec = co_await read_bytes(socket, asked); ec) co_return ec;
    const WallNanoseconds received = wall_nanoseconds();
    std::string reply;
    if (asked.front() == kPing) {
      reply = probe_pong(received, wall_nanoseconds());
    } else if (asked.front() == kData) {
      std::string data(kProbeBytes, '\0');
      if (const error_code ec = co_await read_bytes(socket, data); ec) co_return ec;
      reply.assign(1 + kProbeBytes, '\0');
      reply.front() = kArrived;
    } else {
      co_return kNotTheDoctor;
    }
    if (const error_code ec = co_await write_bytes(socket, reply); ec) co_return ec;
  }
}

AsyncError receive_greeting(tcp::socket& socket, const std::string& secret, int own_rank) {
  std::string greeting(kGreetingBytes, '\0');
  if (const error_code ec = co_await read_bytes(socket, greeting); ec) co_return ec;
  if (!read_greeting(greeting, secret)) co_return kNotTheDoctor;
  const std::string welcome = probe_welcome(own_rank);
  co_return co_await write_bytes(socket, welcome);
}

asio::awaitable<void> serve(tcp::socket socket, std::string secret, int own_rank,
                            std::shared_ptr<int> open) {
  auto greeting = receive_greeting(socket, secret, own_rank);
  if (!co_await within(socket, kPingSeconds, std::move(greeting))) {
    auto rest = answer_requests(socket);
    co_await within(socket, kProbeSeconds, std::move(rest));
  }
  --*open;
}

asio::awaitable<void> accept_all(tcp::acceptor acceptor, std::string secret, int own_rank) {
  const auto open = std::make_shared<int>(0);
  asio::steady_timer pause(acceptor.get_executor());
  for (;;) {
    auto [ec, socket] = co_await acceptor.async_accept(kNoThrow);
    if (ec) {  // No descriptors are left, or the client has gone.
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(kNoThrow);
    } else if (*open < kMaxProbesAtOnce) {
      ++*open;
      spawn_task(acceptor.get_executor(), "answer_probe",
                 serve(std::move(socket), secret, own_rank, open));
    }
  }
}

}  // namespace

asio::awaitable<Probe> probe_peer(asio::any_io_executor executor, ProbeTarget target) {
  Prober prober(executor, std::move(target));
  co_return co_await prober.run();
}

void answer_probes(const asio::any_io_executor& executor, Listener listener, std::string secret,
                   int own_rank) {
  tcp::acceptor acceptor(executor);
  acceptor.assign(listener.endpoint.protocol(), listener.fd.release());
  spawn_task(executor, "answer_probes",
             accept_all(std::move(acceptor), std::move(secret), own_rank));
}

}  // namespace muster::ctl
