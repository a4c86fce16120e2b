// The two ends of the worker channel, for channel_test.py.
//
//     channel_probe listen PATH WORKERS   the agent's: prints "progress RANK"; reads commands:
//                                         "preempt SECONDS", "reset", and the end of its input
//     channel_probe report STEPS          a worker's: reports, and says whether a notice is there
//     channel_probe work STEPS            the same, but waits for the notice
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "agent/io/worker_channel.h"
#include "rendezvous/net/clock.h"

#include "muster/agent.h"

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kWorkerLimit = 60s;

void say(const std::string& line) {
  std::cout << line + "\n" << std::flush;
}

class Commands {
 public:
  Commands(asio::io_context& io, muster::WorkerChannel& channel)
      : io_(io), channel_(channel), input_(io, ::dup(STDIN_FILENO)) {
    next();
  }

 private:
  void next() {
    asio::async_read_until(input_, buffer_, '\n', [this](boost::system::error_code ec, auto) {
      if (ec) return io_.stop();
      std::istream lines(&buffer_);
      std::string line;
      std::getline(lines, line);
      carry_out(line);
      next();
    });
  }

  void carry_out(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    double seconds = 0;
    words >> verb >> seconds;
    if (verb == "preempt")
      channel_.preempt(muster::now() + std::chrono::duration_cast<muster::Duration>(
                                           std::chrono::duration<double>(seconds)));
    if (verb == "reset") channel_.reset();
    say("done " + verb);
  }

  asio::io_context& io_;
  muster::WorkerChannel& channel_;
  asio::posix::stream_descriptor input_;
  asio::streambuf buffer_;
};

int listen(const std::string& path, int workers) {
  asio::io_context io{1};
  auto channel = muster::WorkerChannel::open(io, path, workers, [](muster::LocalRank rank) {
    say("progress " + std::to_string(rank.value));
  });
  if (!channel) {
    say("failed " + channel.error().message());
    return 1;
  }
  say("listening");
  const Commands commands(io, **channel);
  io.run();
  return 0;
}

int report(int steps) {
  for (int step = 0; step < steps; ++step)
    muster::report_progress(step);
  say(muster::preemption_deadline() ? "notice" : "no notice");
  return 0;
}

int work(int steps) {
  for (int step = 0; step < steps; ++step)
    muster::report_progress(step);
  const auto limit = std::chrono::steady_clock::now() + kWorkerLimit;
  while (std::chrono::steady_clock::now() < limit) {
    if (const auto deadline = muster::preemption_deadline()) {
      const std::chrono::duration<double> left = *deadline - std::chrono::steady_clock::now();
      say("left " + std::to_string(left.count()));
      return 0;
    }
    std::this_thread::sleep_for(5ms);
  }
  say("no notice");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("probe"));  // stdout is for the test.
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "listen" && argc == 4) return listen(argv[2], std::stoi(argv[3]));
  if (mode == "report" && argc == 3) return report(std::stoi(argv[2]));
  if (mode == "work" && argc == 3) return work(std::stoi(argv[2]));
  std::cerr << "usage: channel_probe listen PATH WORKERS | report STEPS | work STEPS\n";
  return 2;
}
