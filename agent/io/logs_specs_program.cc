#include "agent/io/logs_specs_program.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "agent/io/helper_end.h"
#include "agent/posix/find_program.h"
#include "base/check.h"
#include "base/from_errno.h"
#include "base/net/bounded_work.h"
#include "base/net/no_throw.h"
#include "base/net/spawn_task.h"
#include "base/system/owned_fd.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

// A cold import of torch from a network file system takes a minute or two. The loop handles signals
// meanwhile.
constexpr auto kAnswerLimit = 300s;
constexpr auto kEndLimit = 2s;

}  // namespace

LogsSpecsProgram::LogsSpecsProgram(asio::io_context& io, const LogsSpecsOptions& specs,
                                   const AgentOptions& options,
                                   std::vector<std::string> environment)
    : io_(io),
      specs_(specs),
      options_(options),
      environment_(std::move(environment)),
      socket_(io) {}

std::string LogsSpecsProgram::with_name(std::string_view problem) const {
  return ("--logs-specs " + specs_.name + ": ").append(problem);
}

std::string LogsSpecsProgram::cannot_start(const error_code& why) const {
  return "cannot start '" + specs_.command[0] + "': " + why.message();
}

// Bounded in time, because a folder of PATH may be on storage that does not answer.
asio::awaitable<error_code> LogsSpecsProgram::find() {
  const auto found = std::make_shared<Result<std::string>>(std::string());
  std::function<void()> work = [found, name = specs_.command[0],
                                path = std::string(path_variable(environment_))] {
    *found = find_program(name, path);
  };
  const error_code failed = co_await run_in_time(std::move(work), kAnswerLimit);
  if (failed || !*found) co_return failed ? failed : found->error();
  command_ = specs_.command;
  command_[0] = **found;
  co_return failed;
}

error_code LogsSpecsProgram::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return from_errno(errno);
  error_code ec;
  socket_.assign(asio::local::stream_protocol(), ends[0], ec);
  const OwnedFd other_end(ends[1]);
  Result<HelperProcess> started = HelperProcess::start_on_socket(command_, environment_, ends[1]);
  if (!started) return started.error();
  helper_.emplace(std::move(*started));
  return {};
}

asio::awaitable<void> LogsSpecsProgram::start_and_load(
    std::function<void(const std::string& problem)> done) {
  const auto self = shared_from_this();
  error_code failed = co_await find();
  if (closed_) co_return;
  if (!failed) failed = start();
  if (failed) co_return done(with_name(cannot_start(failed)));
  ask(logs_specs_begin(specs_, options_.log), [this, done = std::move(done)](const Line& line) {
    if (!line) return done(with_name(line.error().text));
    const auto ready = read_logs_specs_ready(*line);
    if (!ready) return done(with_name(ready.error().text));
    loaded_ = true;
    done({});
  });
}

void LogsSpecsProgram::ask(std::string question, Answered done) {
  if (request_pending_) {
    next_.emplace(std::move(question), std::move(done));
    return;
  }
  request_pending_ = true;
  spawn_task(io_.get_executor(), "logs_specs", exchange(std::move(question), std::move(done)));
}

asio::awaitable<error_code> LogsSpecsProgram::round_trip(std::string& text) {
  if (auto [ec, n] = co_await asio::async_write(socket_, asio::buffer(text), kNoThrow); ec)
    co_return ec;
  auto buffer = asio::dynamic_buffer(answers_, kMaxLogsSpecsBytes);
  auto [ec, size] = co_await asio::async_read_until(socket_, buffer, '\n', kNoThrow);
  if (ec) co_return ec;
  text = answers_.substr(0, size);
  answers_.erase(0, size);
  co_return ec;
}

asio::awaitable<void> LogsSpecsProgram::exchange(std::string text, Answered done) {
  const auto self = shared_from_this();
  asio::steady_timer limit(io_, kAnswerLimit);
  const auto first = co_await (round_trip(text) || limit.async_wait(kNoThrow));
  if (closed_) co_return;
  const error_code* ec = std::get_if<0>(&first);
  if (ec != nullptr && !*ec)
    co_return answered(Line(boost::system::in_place_value, std::move(text)), done);
  const error_code no_start = helper_ ? helper_->start_error() : error_code();
  helper_.reset();  // After a failed exchange the program is of no use.
  LogsSpecsError error{"its program ended without an answer; what it printed is above"};
  if (no_start)
    error.text = cannot_start(no_start);
  else if (ec == nullptr)
    error.text = "its program gave no answer within " +
                 std::to_string(std::chrono::seconds(kAnswerLimit).count()) + " s";
  else if (*ec == asio::error::not_found)
    error.text = "its program's answer is too long";
  answered(error, done);
}

void LogsSpecsProgram::answered(const Line& line, const Answered& done) {
  request_pending_ = false;
  auto next = std::exchange(next_, std::nullopt);
  done(line);
  if (next && !closed_) ask(std::move(next->first), std::move(next->second));
}

asio::awaitable<void> LogsSpecsProgram::wait_for_end(std::function<void()> done) {
  const auto self = shared_from_this();
  MUSTER_CHECK(helper_.has_value());
  // Without a descriptor for the wait, the program is killed at once.
  if (auto ended = watch_end(io_, *helper_)) {
    asio::steady_timer limit(io_, kEndLimit);
    co_await (ended->async_wait(asio::posix::descriptor_base::wait_read, kNoThrow) ||
              limit.async_wait(kNoThrow));
  }
  helper_.reset();
  done();
}

void LogsSpecsProgram::load(std::function<void(const std::string& problem)> done) {
  if (loaded_) return done({});
  spawn_task(io_.get_executor(), "logs_specs_load", start_and_load(std::move(done)));
}

void LogsSpecsProgram::request_dest(const std::vector<Variables>& environments,
                                    std::function<void(const DestResult&)> done) {
  ask(logs_specs_request(environments), [this, done = std::move(done)](const Line& line) {
    const auto refuse = [this, &done](const LogsSpecsError& error) {
      done(LogsSpecsError{with_name(error.text)});
    };
    if (!line) return refuse(line.error());
    const DestResult placed = read_logs_dest(*line, options_);
    if (!placed) return refuse(placed.error());
    done(placed);
  });
}

void LogsSpecsProgram::close(std::function<void()> done) {
  closed_ = true;
  error_code ignored;
  socket_.close(ignored);
  if (request_pending_) helper_.reset();  // Nobody needs its answer any more.
  if (!helper_) return done();
  spawn_task(io_.get_executor(), "logs_specs_end", wait_for_end(std::move(done)));
}

}  // namespace muster
