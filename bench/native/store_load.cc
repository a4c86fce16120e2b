// Load on a TCPStore server, from one thread with one epoll set. It is a closed loop: each client
// waits for an answer before its next request, as torch's clients do. Works with any server, whose
// port is an argument. Prints one JSON object.
//
//   store_load --port N [--connections 64] [--seconds 2] [--mode getset|get|add|ping]
//              [--value-bytes 64] [--pid SERVER]
//   store_load --port N --scenario connect|wake|barrier|large|idle [--connections 1000]

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/store/c10d_codec.h"

#include "bench/native/process_use.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

struct Settings {
  std::uint16_t port = 0;
  int connections = 64;
  double seconds = 2;
  std::string mode = "getset";
  std::string scenario = "rate";
  std::size_t value_bytes = 64;
  int pid = 0;
};

std::string encoded(const Request& request) {
  std::string bytes;
  encode_request(request, bytes);
  return bytes;
}

std::string waiting_for(std::string_view key) {
  const std::array<std::string_view, 1> keys{key};
  return encoded({.query = Query::Wait, .keys = keys});
}

int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) fail("connect");
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) fail("send");
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void read_exactly(int fd, std::size_t bytes) {
  static std::vector<char> buffer(1 << 20);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, buffer.data(), std::min(bytes, buffer.size()), 0);
    if (got <= 0) fail("recv");
    bytes -= static_cast<std::size_t>(got);
  }
}

const std::string& greeting() {
  static const std::string bytes =
      encoded({.query = Query::Validate, .number = c10d::kValidationMagic}) +
      encoded({.query = Query::Ping, .number = 4711});
  return bytes;
}

/// The clients, connected and greeted. An epoll set has them by index.
class Clients {
 public:
  Clients(std::uint16_t port, int count) : set_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (int i = 0; i < count; ++i) {
      fds_.push_back(connect_to(port));
      send_all(fds_.back(), greeting());
    }
    for (const int fd : fds_)
      read_exactly(fd, 4);
  }
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;
  ~Clients() {
    for (const int fd : fds_)
      ::close(fd);
    ::close(set_);
  }

  int operator[](std::size_t i) const { return fds_[i]; }
  std::size_t size() const { return fds_.size(); }

  void watch_all() {
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      if (::epoll_ctl(set_, EPOLL_CTL_ADD, fds_[i], &event) < 0) fail("epoll_ctl");
    }
  }
  template <typename Visit>
  void wait(Visit visit) {
    std::array<epoll_event, 256> events;
    const int count = ::epoll_wait(set_, events.data(), static_cast<int>(events.size()), 10'000);
    if (count == 0) throw std::runtime_error("no answer within 10 s");
    for (int i = 0; i < count; ++i)
      visit(static_cast<std::size_t>(events[static_cast<std::size_t>(i)].data.u64));
  }

 private:
  int set_;
  std::vector<int> fds_;
};

/// One step of a client's loop: the bytes of the request, and the length of its answer.
struct Step {
  std::string bytes;
  std::size_t answer_bytes;
};

// The steps of torch's client: SET has no answer and is sent alone. A get is WAIT, its answer, GET.
std::vector<Step> steps_for(const Settings& settings, std::size_t client) {
  const std::string key = "/bench/client-" + std::to_string(client);
  const std::string value(settings.value_bytes, 'v');
  const std::string set = encoded({.query = Query::Set, .key = key, .value = value});
  const Step wait{waiting_for(key), 1};
  const Step get{encoded({.query = Query::Get, .key = key}), 8 + settings.value_bytes};
  if (settings.mode == "ping") return {{encoded({.query = Query::Ping, .number = 1}), 4}};
  if (settings.mode == "add")
    return {{encoded({.query = Query::Add, .key = "/hot", .number = 1}), 8}};
  if (settings.mode == "get") return {wait, get};
  return {{set, 0}, wait, get};
}

struct Progress {
  std::vector<Step> steps;
  std::size_t step = 0;
  std::size_t missing = 0;
  Clock::time_point sent;
};

// Sends requests up to the next one that has an answer, and returns how many it sent.
std::uint64_t send_next(int fd, Progress& client) {
  std::uint64_t sent = 0;
  client.sent = Clock::now();
  do {
    const Step& step = client.steps[client.step];
    client.step = (client.step + 1) % client.steps.size();
    send_all(fd, step.bytes);
    client.missing = step.answer_bytes;
    ++sent;
  } while (client.missing == 0);
  return sent;
}

double percentile(std::vector<float>& times, double part) {
  if (times.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + at, times.end());
  return times[static_cast<std::size_t>(at)];
}

nlohmann::json run_rate(const Settings& settings) {
  Clients clients(settings.port, settings.connections);
  clients.watch_all();
  std::vector<Progress> progress(clients.size());
  for (std::size_t i = 0; i < clients.size(); ++i) {
    progress[i].steps = steps_for(settings, i);
    if (settings.mode == "get")
      send_all(clients[i], steps_for({.value_bytes = settings.value_bytes}, i)[0].bytes);
  }
  std::vector<float> times;
  times.reserve(4'000'000);
  std::array<char, 1 << 16> buffer;
  std::uint64_t requests = 0;
  const bench::ProcessUse before = bench::use_of(settings.pid);
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < clients.size(); ++i)
    requests += send_next(clients[i], progress[i]);
  while (seconds_since(begin) < settings.seconds) {
    clients.wait([&](std::size_t i) {
      const ssize_t got = ::recv(clients[i], buffer.data(), buffer.size(), 0);
      if (got <= 0) fail("recv");
      Progress& client = progress[i];
      client.missing -= std::min(client.missing, static_cast<std::size_t>(got));
      if (client.missing > 0) return;
      times.push_back(std::chrono::duration<float, std::micro>(Clock::now() - client.sent).count());
      requests += send_next(clients[i], client);
    });
  }
  const double elapsed = seconds_since(begin);
  const bench::ProcessUse after = bench::use_of(settings.pid);
  nlohmann::json result{{"mode", settings.mode},
                        {"connections", settings.connections},
                        {"requests_s", static_cast<double>(requests) / elapsed},
                        {"round_trips_s", static_cast<double>(times.size()) / elapsed},
                        {"p50_us", percentile(times, 0.5)},
                        {"p99_us", percentile(times, 0.99)}};
  // Only SET and GET count as operations of the user. WAIT is a part of the GET of torch's client.
  const double per_op = settings.mode == "getset" ? 2.0 / 3 : settings.mode == "get" ? 0.5 : 1.0;
  result["ops_s"] = static_cast<double>(requests) * per_op / elapsed;
  if (settings.pid != 0)
    result["server_cpu_us_per_request"] =
        (after.cpu_s - before.cpu_s) * 1e6 / static_cast<double>(requests);
  return result;
}

// All clients connect, each sends VALIDATE and PING, and then all answers are read.
nlohmann::json run_connect(const Settings& settings) {
  const auto begin = Clock::now();
  const Clients clients(settings.port, settings.connections);
  return {{"connect_s", seconds_since(begin)}, {"connections", settings.connections}};
}

nlohmann::json run_idle(const Settings& settings) {
  const bench::ProcessUse before = bench::use_of(settings.pid);
  const Clients clients(settings.port, settings.connections);
  const bench::ProcessUse after = bench::use_of(settings.pid);
  return {{"connections", settings.connections},
          {"rss_before_mb", before.rss_mb},
          {"rss_mb", after.rss_mb}};
}

// All clients wait for one key. Measures the time from the SET to the last client's answer.
nlohmann::json run_wake(const Settings& settings) {
  Clients clients(settings.port, settings.connections);
  const std::string key = "/bench/wake-" + std::to_string(::getpid());
  for (std::size_t i = 0; i < clients.size(); ++i) {
    send_all(clients[i], waiting_for(key));
    send_all(clients[i], encoded({.query = Query::Ping, .number = 1}));
    read_exactly(clients[i], 4);  // The answer to PING: the server has also received the WAIT.
  }
  Clients setter(settings.port, 1);
  const auto begin = Clock::now();
  send_all(setter[0], encoded({.query = Query::Set, .key = key, .value = "1"}));
  for (std::size_t i = 0; i < clients.size(); ++i)
    read_exactly(clients[i], 1);
  return {{"wake_ms", seconds_since(begin) * 1e3}, {"connections", settings.connections}};
}

// All clients arrive at one barrier. Measures the time from the first arrival to the last answer.
nlohmann::json run_barrier(const Settings& settings) {
  Clients clients(settings.port, settings.connections);
  const std::string key = "/bench/barrier-" + std::to_string(::getpid());
  const std::string arrive =
      encoded({.query = Query::Barrier, .key = key, .number = settings.connections});
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < clients.size(); ++i)
    send_all(clients[i], arrive);
  for (std::size_t i = 0; i < clients.size(); ++i)
    read_exactly(clients[i], 1);
  return {{"barrier_ms", seconds_since(begin) * 1e3}, {"connections", settings.connections}};
}

nlohmann::json run_large(const Settings& settings) {
  Clients clients(settings.port, 1);
  const std::string value(settings.value_bytes, 'v');
  const std::string set = encoded({.query = Query::Set, .key = "/bench/large", .value = value});
  const std::string get = encoded({.query = Query::Get, .key = "/bench/large"});
  const std::string ping = encoded({.query = Query::Ping, .number = 1});
  const double mb = static_cast<double>(settings.value_bytes) / 1e6;
  std::vector<float> sets, gets, copies;
  std::string copy(settings.value_bytes, 'c');
  for (int i = 0; i < 5; ++i) {
    auto begin = Clock::now();
    send_all(clients[0], set);
    send_all(clients[0], ping);
    read_exactly(clients[0], 4);
    sets.push_back(static_cast<float>(mb / seconds_since(begin)));
    begin = Clock::now();
    send_all(clients[0], get);
    read_exactly(clients[0], 8 + settings.value_bytes);
    gets.push_back(static_cast<float>(mb / seconds_since(begin)));
    begin = Clock::now();
    std::memcpy(copy.data(), value.data(), value.size());
    copies.push_back(static_cast<float>(mb / seconds_since(begin)));
  }
  send_all(clients[0], encoded({.query = Query::DeleteKey, .key = "/bench/large"}));
  read_exactly(clients[0], 8);
  return {{"value_mb", mb},
          {"set_mb_s", percentile(sets, 0.5)},
          {"get_mb_s", percentile(gets, 0.5)},
          {"memcpy_mb_s", percentile(copies, 0.5)}};
}

nlohmann::json run(const Settings& settings) {
  if (settings.scenario == "connect") return run_connect(settings);
  if (settings.scenario == "idle") return run_idle(settings);
  if (settings.scenario == "wake") return run_wake(settings);
  if (settings.scenario == "barrier") return run_barrier(settings);
  if (settings.scenario == "large") return run_large(settings);
  return run_rate(settings);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) try {
  muster::Settings settings;
  CLI::App app{"Load on a TCPStore server; prints JSON."};
  app.add_option("--port", settings.port)->required();
  app.add_option("--connections", settings.connections)->capture_default_str();
  app.add_option("--seconds", settings.seconds)->capture_default_str();
  app.add_option("--mode", settings.mode)->check(CLI::IsMember({"getset", "get", "add", "ping"}));
  app.add_option("--scenario", settings.scenario)
      ->check(CLI::IsMember({"rate", "connect", "idle", "wake", "barrier", "large"}));
  app.add_option("--value-bytes", settings.value_bytes)->capture_default_str();
  app.add_option("--pid", settings.pid, "The server, for its CPU time and memory");
  CLI11_PARSE(app, argc, argv);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::printf("%s\n", muster::run(settings).dump().c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "store_load: %s\n", error.what());
  return 1;
}
