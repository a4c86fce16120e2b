// Simulates N muster nodes that join one rendezvous. Then one of them fails, and all join again.
// Prints one JSON object.
//
//   rendezvous_load --port N [--nodes 64] [--restarts 2] [--idle-seconds 0] [--pid SERVER]
//                   [--connecting 1000000] [--limit-seconds 120]
//                   [--tls-ca FILE]
//   rendezvous_load --port N --bare     the physical limit: Script::Bare
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "bench/native/muster_nodes.h"
#include "bench/native/process_use.h"

namespace muster {
namespace {

struct Settings {
  bench::MusterNodesOptions nodes;
  int restarts = 2;
  double idle_seconds = 0;
  int pid = 0;
};

double own_cpu_s() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

nlohmann::json difference(const bench::Traffic& now, const bench::Traffic& before) {
  return {{"messages_to", now.messages_to - before.messages_to},
          {"bytes_to", now.bytes_to - before.bytes_to},
          {"messages_from", now.messages_from - before.messages_from},
          {"bytes_from", now.bytes_from - before.bytes_from},
          {"keep_alives", now.keep_alives - before.keep_alives},
          {"keep_alive_bytes", now.keep_alive_bytes - before.keep_alive_bytes},
          {"waitings", now.waitings - before.waitings},
          {"waiting_bytes", now.waiting_bytes - before.waiting_bytes}};
}

/// Runs one phase, and measures its traffic and its cost for the server.
template <typename Phase>
nlohmann::json measured(const Settings& settings, const bench::MusterNodes& nodes, Phase phase) {
  const bench::ProcessUse use = bench::use_of(settings.pid);
  const bench::Traffic traffic = nodes.traffic();
  const double own = own_cpu_s();
  const double seconds = phase();
  nlohmann::json result = difference(nodes.traffic(), traffic);
  result["seconds"] = seconds;
  result["own_cpu_s"] = own_cpu_s() - own;
  result["server_cpu_s"] = bench::use_of(settings.pid).cpu_s - use.cpu_s;
  return result;
}

nlohmann::json run(const Settings& settings) {
  bench::MusterNodes nodes(settings.nodes);
  nlohmann::json result = {{"nodes", settings.nodes.nodes},
                           {"rss_before_mb", bench::use_of(settings.pid).rss_mb}};
  result["join"] = measured(settings, nodes, [&] { return nodes.join(); });
  result["restarts"] = nlohmann::json::array();
  for (int i = 0; i < settings.restarts; ++i)
    result["restarts"].push_back(measured(settings, nodes, [&] { return nodes.restart(); }));
  result["idle"] = measured(settings, nodes, [&] { return nodes.idle(settings.idle_seconds); });
  const bench::ProcessUse use = bench::use_of(settings.pid);
  result["rss_mb"] = use.rss_mb;
  result["peak_rss_mb"] = use.peak_rss_mb;
  return result;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) try {
  muster::Settings settings;
  muster::bench::MusterNodesOptions& nodes = settings.nodes;
  bool bare = false;
  muster::TlsFiles tls;
  CLI::App app{"N muster nodes at one rendezvous; prints JSON."};
  app.add_option("--port", nodes.port)->required();
  app.add_option("--nodes", nodes.nodes)->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--restarts", settings.restarts)->capture_default_str();
  app.add_option("--idle-seconds", settings.idle_seconds, "Afterwards, with keep-alives");
  app.add_option("--pid", settings.pid, "The server, for its CPU time and memory");
  app.add_option("--limit-seconds", nodes.limit_seconds)->capture_default_str();
  app.add_option("--connecting", nodes.connecting, "Connects at once, at most")
      ->check(CLI::PositiveNumber);
  app.add_option("--tls-ca", tls.ca, "Come by TLS, to a server with a certificate for 127.0.0.1");
  app.add_flag("--bare", bare, "The server is bare_epoll_server");
  CLI11_PARSE(app, argc, argv);
  if (bare) nodes.script = muster::bench::Script::Bare;
  if (tls.any()) {
    auto context = muster::make_tls_context(muster::TlsSide::Client, tls);
    if (!context) throw std::runtime_error(context.error().reason);
    nodes.tls = std::make_shared<muster::TlsPump>(*std::move(context));
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::printf("%s\n", muster::run(settings).dump().c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "rendezvous_load: %s\n", error.what());
  return 1;
}
