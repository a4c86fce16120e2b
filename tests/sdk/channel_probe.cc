// The two ends of the worker channel, for channel_test.py.
//
//     channel_probe listen PATH WORKERS   the agent's end: prints "progress RANK" and reads the
//                                         commands "preempt SECONDS", "notify SECONDS", "held",
//                                         "reset" and "count" until its input ends. From "count" on
//                                         it counts the reports of rank 0 and does not print them
//     channel_probe report STEPS          a worker's end: reports, and prints whether a notice is
//                                         there
//     channel_probe work STEPS            as report, but waits for the notice
//     channel_probe alternate STEPS       reports and withdraws its promise of reports in each
//     step,
//                                         and asks for the notice at the end
//     channel_probe ask                   asks once for each line of its input
//     channel_probe ahead                 as answer, and answers before the notice, too
//     channel_probe answer                reports, waits for a line of its input, and answers and
//                                         prints the notice
//     channel_probe train FOLDER HOW      a worker under muster, see train()
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "agent/io/worker_channel.h"
#include "base/system/clock.h"

#include "muster/agent.h"
#include "muster/record.h"

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kWorkerLimit = 60s;

void print_line(const std::string& line) {
  std::cout << line + "\n" << std::flush;
}

// Prints the workers' reports, or counts those of rank 0.
class Reports {
 public:
  void add(const muster::WorkerProgress& progress) {
    if (counts_ && progress.rank.value == 0)
      ++count_;
    else
      print_line((progress.ends ? "progress_end " : "progress ") +
                 std::to_string(progress.rank.value));
  }
  // Returns the number since the last call. From the first call on, reports of rank 0 are counted.
  int count() {
    counts_ = true;
    return std::exchange(count_, 0);
  }

 private:
  bool counts_ = false;
  int count_ = 0;
};

class Commands {
 public:
  Commands(asio::io_context& io, muster::WorkerChannel& channel, Reports& reports)
      : io_(io), channel_(channel), reports_(reports), input_(io, ::dup(STDIN_FILENO)) {
    next();
  }

 private:
  void next() {
    asio::async_read_until(input_, buffer_, '\n', [this](boost::system::error_code ec, auto) {
      if (ec) return io_.stop();
      std::istream lines(&buffer_);
      std::string line;
      std::getline(lines, line);
      apply(line);
      next();
    });
  }

  void apply(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    double seconds = 0;
    words >> verb >> seconds;
    const muster::Instant deadline = muster::now() + std::chrono::duration_cast<muster::Duration>(
                                                         std::chrono::duration<double>(seconds));
    if (verb == "preempt") channel_.preempt({.deadline = deadline, .reason = "a test"});
    if (verb == "notify")
      channel_.notify({.deadline = deadline,
                       .reason = "\"b\" \xc3\xa4\n goes",
                       .doomed = false,
                       .doomed_ranks = {{0, 3}, {8, 8}},
                       .follow = muster::AfterNotice::Shrink});
    if (verb == "reset") channel_.reset();
    if (verb == "held")
      for (int rank = 0; rank < 3; ++rank)
        if (channel_.preemption().ends_itself(muster::LocalRank{rank}))
          print_line("held " + std::to_string(rank));
    print_line("done " + verb +
               (verb == "count" ? " " + std::to_string(reports_.count()) : std::string()));
  }

  asio::io_context& io_;
  muster::WorkerChannel& channel_;
  Reports& reports_;
  asio::posix::stream_descriptor input_;
  asio::streambuf buffer_;
};

int listen(const std::string& path, int workers) {
  asio::io_context io{1};
  Reports reports;
  auto listener = muster::WorkerChannel::listen_at(path);
  if (!listener) {
    print_line("failed " + listener.error().message());
    return 1;
  }
  muster::WorkerChannel channel(
      io, std::move(*listener), path, workers,
      {.on_progress = [&reports](const muster::WorkerProgress& progress) { reports.add(progress); },
       .on_overdue = [](auto rank) { print_line("overdue " + std::to_string(rank.value)); },
       .on_saved =
           [](const muster::WorkerSaved& saved) {
             print_line("saved " + std::to_string(saved.rank.value) +
                        (saved.id ? " " + std::to_string(*saved.id) : ""));
           }});
  print_line("listening");
  const Commands commands(io, channel, reports);
  io.run();
  return 0;
}

int report(int steps) {
  for (int step = 0; step < steps; ++step)
    muster::report_progress(step);
  muster::end_progress();
  print_line(muster::preemption_deadline() ? "notice" : "no notice");
  return 0;
}

int alternate(int steps) {
  for (int step = 0; step < steps; ++step) {
    muster::report_progress(step);
    muster::end_progress();
  }
  print_line(muster::preemption_deadline() ? "notice" : "no notice");
  return 0;
}

int work(int steps) {
  for (int step = 0; step < steps; ++step)
    muster::report_progress(step);
  const auto limit = std::chrono::steady_clock::now() + kWorkerLimit;
  while (std::chrono::steady_clock::now() < limit) {
    if (const auto deadline = muster::preemption_deadline()) {
      const std::chrono::duration<double> left = *deadline - std::chrono::steady_clock::now();
      print_line("left " + std::to_string(left.count()));
      return 0;
    }
    std::this_thread::sleep_for(5ms);
  }
  print_line("no notice");
  return 1;
}

int ask() {
  muster::preemption_deadline();  // Connects, and promises to end by itself.
  print_line("asked");
  for (std::string line; std::getline(std::cin, line);) {
    const auto deadline = muster::preemption_deadline();
    if (!deadline) {
      print_line("no notice");
      continue;
    }
    const std::chrono::duration<double> left = *deadline - std::chrono::steady_clock::now();
    const std::chrono::duration<double> then = deadline->time_since_epoch();
    print_line("left " + std::to_string(left.count()) + " at " + std::to_string(then.count()));
  }
  return 0;
}

int answer() {
  muster::progress(1);
  std::string line;
  std::getline(std::cin, line);
  const auto notice = muster::notice();
  if (!notice) return 1;
  muster::saved();
  print_line(nlohmann::json{{"reason", notice->reason},
                            {"doomed", notice->doomed},
                            {"doomed_ranks", notice->doomed_ranks},
                            {"follow", notice->follow},
                            {"id", notice->id},
                            {"generation", muster::generation()}}
                 .dump());
  return 0;
}

// Reports steps like a training until the notice comes. Then HOW decides: "save" writes a file and
// ends, "hang" does not end. "slow" reports steps without other visible activity, and ends when the
// file `finish` exists. "segv" and "throw" fail.
int train(const std::string& folder, const std::string& how) {
  if (how == "throw") throw std::runtime_error("no such data set");
  if (how == "segv") std::raise(SIGSEGV);
  const std::string file = folder + "/" + std::getenv("RANK") + "-";
  const auto limit = std::chrono::steady_clock::now() + kWorkerLimit;
  for (int step = 0; std::chrono::steady_clock::now() < limit; ++step) {
    muster::report_progress(step);
    if (how == "slow" && std::filesystem::exists(folder + "/finish")) return 0;
    const bool told = how != "slow" && muster::preemption_deadline();
    if (step == 0) std::ofstream(file + "running") << "yes";
    if (told && how == "save") {
      std::this_thread::sleep_for(500ms);  // The time to save: a signal would come meanwhile.
      std::ofstream(file + "saved") << "yes";
      return 0;
    }
    std::this_thread::sleep_for(how == "slow" ? 200ms : 20ms);
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("probe"));  // The test reads stdout.
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "listen" && argc == 4) return listen(argv[2], std::stoi(argv[3]));
  if (mode == "report" && argc == 3) return report(std::stoi(argv[2]));
  if (mode == "alternate" && argc == 3) return alternate(std::stoi(argv[2]));
  if (mode == "work" && argc == 3) return work(std::stoi(argv[2]));
  if (mode == "ask" && argc == 2) return ask();
  if (mode == "answer" && argc == 2) return answer();
  if (mode == "ahead" && argc == 2) {
    muster::saved();
    return answer();
  }
  if (mode == "train" && argc == 4)
    return muster::record([argv] { return train(argv[2], argv[3]); });
  std::cerr << "usage: channel_probe listen PATH WORKERS | report STEPS | alternate STEPS\n"
               "       channel_probe work STEPS | ask | answer | ahead\n"
               "       channel_probe train FOLDER save|hang|slow|throw|segv\n";
  return 2;
}
