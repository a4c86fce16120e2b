#include "agent/io/notice_source.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <spdlog/spdlog.h>

#include "agent/core/worker_end.h"
#include "agent/io/helper_end.h"
#include "base/check.h"
#include "base/from_errno.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using boost::system::error_code;

namespace {

constexpr auto kSigtermLimit = std::chrono::seconds(2);
constexpr std::size_t kNoticeReadBytes = 1024;
// What a program that has ended may have left in its pipe. A process that it has left may write on.
constexpr int kReadsAfterEnd = 64;

}  // namespace

NoticeSource::NoticeSource(asio::io_context& io, Options options,
                           std::function<void(const NodeGoes&)> on_notice)
    : io_(io),
      options_(std::move(options)),
      on_notice_(std::move(on_notice)),
      pause_(io),
      output_(io) {}

void NoticeSource::start() {
  spawn_task(io_.get_executor(), "notice_source", run());
}

asio::awaitable<void> NoticeSource::run() {
  const auto self = shared_from_this();
  for (int failures = 0; !closed_;) {
    const Instant began = now();
    const std::string problem = co_await run_once();
    if (closed_) co_return;
    if (problem.empty()) {
      if (!has_notified_) on_notice_({options_.left_at_end, "the program of --notice-from"});
      co_return;
    }
    failures = now() - began >= kHealthyRun ? 1 : failures + 1;
    const Duration pause = pause_before_restart(failures);
    spdlog::warn("--notice-from: its program {}: starting it again in {} s", problem,
                 std::chrono::duration_cast<std::chrono::seconds>(pause).count());
    pause_.expires_after(pause);
    co_await pause_.async_wait(kNoThrow);
  }
}

error_code NoticeSource::begin() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return from_errno(errno);
  const OwnedFd write_end(ends[1]);
  error_code error;
  output_.close(error);
  output_.assign(ends[0], error);
  if (error) {
    ::close(ends[0]);
    return error;
  }
  const std::vector<std::string> argv{"/bin/sh", "-c", options_.command};
  Result<HelperProcess> started =
      HelperProcess::start_with_stdout(argv, options_.environment, write_end.get());
  if (!started) return started.error();
  helper_.emplace(std::move(*started));
  return {};
}

asio::awaitable<std::string> NoticeSource::run_once() {
  lines_ = {};
  has_notified_ = false;
  if (const error_code failed = begin()) co_return "cannot be started: " + failed.message();
  MUSTER_CHECK(helper_.has_value());
  HelperProcess& helper = *helper_;
  auto ended = watch_end(io_, helper);
  if (!ended) {
    helper_.reset();
    co_return "cannot be watched: " + ended.error().message();
  }
  // A process that the program has started may hold the pipe longer than the program lives, and a
  // program may close its stdout and live on.
  const auto first = co_await (
      read_lines() || ended->async_wait(asio::posix::descriptor_base::wait_read, kNoThrow));
  if (first.index() == 0 && !closed_)
    co_await ended->async_wait(asio::posix::descriptor_base::wait_read, kNoThrow);
  if (closed_) co_return std::string();  // wait_for_end() has the program now.
  read_rest();
  const error_code no_start = helper.start_error();
  helper.finish();
  const std::optional<WorkerExit> exit = helper.exit();
  helper_.reset();
  if (no_start) co_return "cannot be started: " + no_start.message();
  if (!exit) co_return "does not end after SIGKILL";
  co_return exit->ok() ? std::string() : exit_text(*exit);
}

asio::awaitable<void> NoticeSource::read_lines() {
  std::array<char, kNoticeReadBytes> bytes{};
  while (!closed_) {
    const auto [ec, n] = co_await output_.async_read_some(asio::buffer(bytes), kNoThrow);
    if (ec) co_return;
    lines_.add(std::string_view(bytes.data(), n));
    report_lines();
  }
}

asio::awaitable<void> NoticeSource::read_to_end() {
  std::array<char, kNoticeReadBytes> bytes{};
  for (;;) {
    const auto [ec, n] = co_await output_.async_read_some(asio::buffer(bytes), kNoThrow);
    if (ec) co_return;
  }
}

void NoticeSource::read_rest() {
  std::array<char, kNoticeReadBytes> bytes{};
  error_code ec;
  output_.non_blocking(true, ec);
  for (int reads = 0; !ec && reads < kReadsAfterEnd; ++reads) {
    const std::size_t n = output_.read_some(asio::buffer(bytes), ec);
    if (ec) break;
    lines_.add(std::string_view(bytes.data(), n));
    report_lines();
  }
  lines_.end();
  report_lines();
}

void NoticeSource::report_lines() {
  while (const auto found = lines_.next()) {
    if (closed_) return;
    if (found->notice) {
      has_notified_ = true;
      on_notice_(*found->notice);
    } else {
      spdlog::warn("--notice-from: {}", found->problem);
    }
  }
}

// A shell dies of SIGTERM at once, and its child may still clean up: both have the pipe.
asio::awaitable<void> NoticeSource::wait_for_end(std::function<void()> done) {
  const auto self = shared_from_this();
  asio::steady_timer limit(io_, kSigtermLimit);
  co_await (read_to_end() || limit.async_wait(kNoThrow));
  if (helper_) helper_->signal(SIGKILL);  // run_once() may have seen its end.
  helper_.reset();
  done();
}

void NoticeSource::close(std::function<void()> done) {
  if (std::exchange(closed_, true)) return done();
  pause_.cancel();
  if (!helper_) return done();
  helper_->signal(SIGTERM);
  spawn_task(io_.get_executor(), "notice_source_end", wait_for_end(std::move(done)));
}

}  // namespace muster
