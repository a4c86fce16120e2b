// Simulates many runs of muster nodes at one musterd. The nodes can resume. Prints one JSON object.
//
//   musterd_load --port N --pid SERVER [--runs 1] [--nodes 64] [--restarts 0] [--idle-seconds 0]
//                [--kill] [--connecting 1000000] [--limit-seconds 120] [--tls-ca FILE]
//
// --kill: at the end, kills the server. Another process must start it again on the same port.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "bench/native/muster_nodes.h"
#include "bench/native/process_use.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Runs = std::vector<std::unique_ptr<bench::MusterNodes>>;

struct Settings {
  bench::MusterNodesOptions nodes;
  int runs = 1;
  int restarts = 0;
  double idle_seconds = 0;
  bool kill = false;
  int pid = 0;
};

nlohmann::json spread(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  if (samples.empty()) return {{"count", 0}};
  const auto at = [&](double part) {
    return samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1))];
  };
  return {{"count", samples.size()}, {"median", at(0.5)}, {"p99", at(0.99)}, {"max", at(1)}};
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void serve(Runs& runs) {
  for (const auto& run : runs)
    run->serve(0ms);
}

double idle(Runs& runs, double seconds) {
  const auto begin = Clock::now();
  while (seconds_since(begin) < seconds) {
    serve(runs);
    runs.front()->serve(5ms);
  }
  return seconds_since(begin);
}

nlohmann::json measure(const Settings& settings) {
  Runs runs;
  nlohmann::json result;
  const auto begin = Clock::now();
  for (int i = 0; i < settings.runs; ++i) {
    bench::MusterNodesOptions options = settings.nodes;
    options.run = i;
    options.resumes = true;
    runs.push_back(std::make_unique<bench::MusterNodes>(options));
    runs.back()->join();
    serve(runs);
  }
  result["join_s"] = seconds_since(begin);
  result["restart_s"] = nlohmann::json::array();
  for (int i = 0; i < settings.restarts; ++i)
    result["restart_s"].push_back(runs.front()->restart());
  result["acknowledged"] = spread(runs.front()->acknowledged_seconds());
  const double cpu_s = bench::use_of(settings.pid).cpu_s;
  const double seconds = idle(runs, settings.idle_seconds);
  if (settings.idle_seconds > 0)
    result["idle_cpu_share"] = (bench::use_of(settings.pid).cpu_s - cpu_s) / seconds;
  std::vector<double> answers;
  for (const auto& run : runs)
    answers.insert(answers.end(), run->answer_seconds().begin(), run->answer_seconds().end());
  result["answers"] = spread(std::move(answers));
  if (settings.kill) result["resume_s"] = runs.front()->resume(settings.pid);
  return result;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) try {
  muster::Settings settings;
  muster::bench::MusterNodesOptions& nodes = settings.nodes;
  CLI::App app{"Many runs of muster nodes at one musterd; prints JSON."};
  app.add_option("--port", nodes.port)->required();
  app.add_option("--pid", settings.pid, "The server")->required();
  app.add_option("--nodes", nodes.nodes, "Of each run")->check(CLI::Range(1, 100'000));
  app.add_option("--runs", settings.runs)->check(CLI::Range(1, 10'000));
  app.add_option("--restarts", settings.restarts, "Of the first run");
  app.add_option("--idle-seconds", settings.idle_seconds, "With keep-alives");
  app.add_flag("--kill", settings.kill, "Kill the server; the nodes of the only run resume");
  app.add_option("--connecting", nodes.connecting)->check(CLI::PositiveNumber);
  app.add_option("--limit-seconds", nodes.limit_seconds);
  muster::TlsFiles tls;
  app.add_option("--tls-ca", tls.ca, "Come by TLS, to a server with a certificate for 127.0.0.1");
  CLI11_PARSE(app, argc, argv);
  if (tls.any()) {
    auto context = muster::make_tls_context(muster::TlsSide::Client, tls);
    if (!context) throw std::runtime_error("--tls-ca: " + context.error().reason);
    nodes.tls = std::make_shared<muster::TlsPump>(*std::move(context));
    nodes.patience = std::chrono::seconds(2);
  }
  if (settings.kill && settings.runs > 1) throw CLI::ValidationError("--kill: one run only");
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::printf("%s\n", muster::measure(settings).dump().c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "musterd_load: %s\n", error.what());
  return 1;
}
