// A fixture that runs a log thread over pipes and a temporary directory. All waits have a limit.

#pragma once

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

#include "agent/logs/log_pump.h"
#include "tests/support/pipe.h"
#include "tests/support/temp_folder.h"

namespace muster::testing {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline constexpr auto kPatience = 20s;  // The limit of all waits; the usual wait is far shorter.

inline void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    REQUIRE(n > 0);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

struct LogPumpTest : TempFolder {
  LogPumpTest() { start(); }
  ~LogPumpTest() { pump.reset(); }
  void start() {
    pump.reset();
    auto started =
        LogPump::start({.stdout_fd = out.write_end.get(), .stderr_fd = err.write_end.get()});
    REQUIRE(started.has_value());
    pump = std::move(*started);
  }
  std::string path(const std::string& name) const { return (dir / name).string(); }
  OwnedFd open_log(const std::string& name) const {
    OwnedFd fd(::open(path(name).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    REQUIRE(fd.is_open());
    return fd;
  }
  void follow(const std::string& name, int rank, LogStream stream = LogStream::Out) {
    pump->follow({.stream = stream,
                  .file = path(name),
                  .prefix = LinePrefix("[" + std::to_string(rank) + "]"),
                  .limits = limits});
  }
  OwnedFd tap(int rank, bool to_console = true) {
    PipeOptions options{.tail_of = LocalRank{rank}};
    if (to_console) options.console = LogStream::Err;
    return pipe(options);
  }
  OwnedFd pipe(const PipeOptions& options) {
    auto fd = pump->pipe(options);
    REQUIRE(fd.has_value());
    return std::move(*fd);
  }
  std::shared_ptr<LogFile> log_file(const std::string& name, const LogFileOptions& options = {}) {
    return std::make_shared<LogFile>(path(name), LogFile::Begin::Append, options);
  }
  // Reads the console until it has shown `size` bytes.
  std::string shown(Pipe& console, std::size_t size) const {
    std::string text;
    std::array<char, 65536> buffer;
    const auto deadline = Clock::now() + kPatience;
    while (text.size() < size && Clock::now() < deadline) {
      pollfd request{console.read_end.get(), POLLIN, 0};
      ::poll(&request, 1, 100);
      const ssize_t n = ::read(console.read_end.get(), buffer.data(), buffer.size());
      if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return text;
  }
  std::future<FinishReport> begin_finish(Duration limit = kPatience) {
    auto promise = std::make_shared<std::promise<FinishReport>>();
    pump->finish(limit, [promise](FinishReport report) { promise->set_value(std::move(report)); });
    return promise->get_future();
  }
  std::future<ShownReport> begin_flush() {
    auto promise = std::make_shared<std::promise<ShownReport>>();
    pump->flush([promise](ShownReport report) { promise->set_value(report); });
    return promise->get_future();
  }
  ShownReport flush() {
    auto report = begin_flush();
    REQUIRE(report.wait_for(kPatience + 5s) == std::future_status::ready);
    return report.get();
  }
  /// Waits until all output is read and shown.
  FinishReport finish(Duration limit = kPatience) {
    auto report = begin_finish(limit);
    REQUIRE(report.wait_for(kPatience + 5s) == std::future_status::ready);
    flush();
    return report.get();
  }
  /// Waits until the log thread has handled all earlier calls.
  void sync() {
    auto promise = std::make_shared<std::promise<void>>();
    pump->run([] {}, [promise] { promise->set_value(); });
    REQUIRE(promise->get_future().wait_for(kPatience) == std::future_status::ready);
  }

  LineLimits limits;  // Of the files that follow() shows.
  Pipe out;
  Pipe err;
  std::unique_ptr<LogPump> pump;
};

}  // namespace muster::testing
