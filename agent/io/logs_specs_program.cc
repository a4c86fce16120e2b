#include "agent/io/logs_specs_program.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "agent/posix/find_program.h"
#include "agent/posix/helper_process.h"
#include "rendezvous/core/check.h"
#include "rendezvous/core/from_errno.h"
#include "rendezvous/net/bounded_work.h"
#include "rendezvous/net/no_throw.h"
#include "rendezvous/net/owned_fd.h"
#include "rendezvous/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

// A cold import of torch from a network file system takes a minute or two; a signal is heard
// meanwhile.
constexpr auto kAnswerLimit = 300s;
constexpr auto kEndLimit = 2s;

std::string with_name(const LogsSpecsOptions& specs, std::string_view problem) {
  return ("--logs-specs " + specs.name + ": ").append(problem);
}

}  // namespace

struct LogsSpecsProgram::Impl : std::enable_shared_from_this<LogsSpecsProgram::Impl> {
  Impl(asio::io_context& io_context, const LogsSpecsOptions& specs_options,
       const AgentOptions& agent_options, std::vector<std::string> program_environment)
      : io(io_context),
        specs(specs_options),
        options(agent_options),
        environment(std::move(program_environment)),
        socket(io_context) {}

  using Line = boost::system::result<std::string, LogsSpecsError>;
  using Answered = std::function<void(const Line&)>;

  asio::awaitable<void> load(std::function<void(const std::string& problem)> done);
  asio::awaitable<error_code> find();
  error_code start();
  std::string cannot_start(const error_code& why) const;
  void ask(std::string question, Answered done);
  asio::awaitable<void> exchange(std::string text, Answered done);
  asio::awaitable<error_code> talk(std::string& text);
  asio::awaitable<void> wait_for_end(std::function<void()> done);

  asio::io_context& io;
  const LogsSpecsOptions& specs;
  const AgentOptions& options;
  const std::vector<std::string> environment;
  asio::local::stream_protocol::socket socket;
  std::vector<std::string> command;  // The program's path first.
  std::optional<HelperProcess> helper;
  std::string answers;  // Read, and behind the last line taken.
  bool asked = false;   // A question is not answered yet.
  bool loaded = false;
  bool closed = false;
};

std::string LogsSpecsProgram::Impl::cannot_start(const error_code& why) const {
  return "cannot start '" + specs.command[0] + "': " + why.message();
}

// A folder of PATH may be on storage that does not answer.
asio::awaitable<error_code> LogsSpecsProgram::Impl::find() {
  const auto found = std::make_shared<Result<std::string>>(std::string());
  std::function<void()> work = [found, name = specs.command[0],
                                path = std::string(path_variable(environment))] {
    *found = find_program(name, path);
  };
  const error_code failed = co_await run_in_time(std::move(work), kAnswerLimit);
  if (failed || !*found) co_return failed ? failed : found->error();
  command = specs.command;
  command[0] = **found;
  co_return failed;
}

error_code LogsSpecsProgram::Impl::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return from_errno(errno);
  error_code ec;
  socket.assign(asio::local::stream_protocol(), ends[0], ec);
  const OwnedFd other_end(ends[1]);
  Result<HelperProcess> started = HelperProcess::start_on_socket(command, environment, ends[1]);
  if (!started) return started.error();
  helper.emplace(std::move(*started));
  return {};
}

asio::awaitable<void> LogsSpecsProgram::Impl::load(
    std::function<void(const std::string& problem)> done) {
  const auto self = shared_from_this();
  error_code failed = co_await find();
  if (closed) co_return;
  if (!failed) failed = start();
  if (failed) co_return done(with_name(specs, cannot_start(failed)));
  ask(logs_specs_begin(specs, options.log), [this, done = std::move(done)](const Line& line) {
    if (!line) return done(with_name(specs, line.error().text));
    const auto ready = read_logs_specs_ready(*line);
    if (!ready) return done(with_name(specs, ready.error().text));
    loaded = true;
    done({});
  });
}

void LogsSpecsProgram::Impl::ask(std::string question, Answered done) {
  asked = true;
  spawn_task(io.get_executor(), "logs_specs", exchange(std::move(question), std::move(done)));
}

asio::awaitable<error_code> LogsSpecsProgram::Impl::talk(std::string& text) {
  if (auto [ec, n] = co_await asio::async_write(socket, asio::buffer(text), kNoThrow); ec)
    co_return ec;
  auto buffer = asio::dynamic_buffer(answers, kMaxLogsSpecsBytes);
  auto [ec, size] = co_await asio::async_read_until(socket, buffer, '\n', kNoThrow);
  if (ec) co_return ec;
  text = answers.substr(0, size);
  answers.erase(0, size);
  co_return ec;
}

asio::awaitable<void> LogsSpecsProgram::Impl::exchange(std::string text, Answered done) {
  const auto self = shared_from_this();
  asio::steady_timer limit(io, kAnswerLimit);
  const auto first = co_await (talk(text) || limit.async_wait(kNoThrow));
  if (closed) co_return;
  asked = false;
  const error_code* ec = std::get_if<0>(&first);
  if (ec != nullptr && !*ec) co_return done(Line(boost::system::in_place_value, std::move(text)));
  const error_code no_start = helper ? helper->start_error() : error_code();
  helper.reset();  // It is of no use any more.
  LogsSpecsError error{"its program ended without an answer; what it printed is above"};
  if (no_start)
    error.text = cannot_start(no_start);
  else if (ec == nullptr)
    error.text = "its program gave no answer within " +
                 std::to_string(std::chrono::seconds(kAnswerLimit).count()) + " s";
  else if (*ec == asio::error::not_found)
    error.text = "its program's answer is too long";
  done(error);
}

asio::awaitable<void> LogsSpecsProgram::Impl::wait_for_end(std::function<void()> done) {
  const auto self = shared_from_this();
  MUSTER_CHECK(helper.has_value());
  asio::posix::stream_descriptor ended(io, ::fcntl(helper->pidfd(), F_DUPFD_CLOEXEC, 3));
  asio::steady_timer limit(io, kEndLimit);
  co_await (ended.async_wait(asio::posix::descriptor_base::wait_read, kNoThrow) ||
            limit.async_wait(kNoThrow));
  helper.reset();
  done();
}

LogsSpecsProgram::LogsSpecsProgram(asio::io_context& io, const LogsSpecsOptions& specs,
                                   const AgentOptions& options,
                                   std::vector<std::string> environment)
    : impl_(std::make_shared<Impl>(io, specs, options, std::move(environment))) {}

LogsSpecsProgram::~LogsSpecsProgram() {
  impl_->closed = true;
}

void LogsSpecsProgram::load(std::function<void(const std::string& problem)> done) {
  if (impl_->loaded) return done({});
  spawn_task(impl_->io.get_executor(), "logs_specs_load", impl_->load(std::move(done)));
}

void LogsSpecsProgram::place(const std::vector<Variables>& environments,
                             std::function<void(const Placed&)> done) {
  const auto with_reason = [impl = impl_.get()](const LogsSpecsError& error) {
    return LogsSpecsError{with_name(impl->specs, error.text)};
  };
  impl_->ask(logs_specs_request(environments),
             [impl = impl_.get(), with_reason, done = std::move(done)](const Impl::Line& line) {
               if (!line) return done(with_reason(line.error()));
               const Placed placed = read_logs_dest(*line, impl->options);
               done(placed ? placed : Placed(with_reason(placed.error())));
             });
}

void LogsSpecsProgram::close(std::function<void()> done) {
  impl_->closed = true;
  error_code ignored;
  impl_->socket.close(ignored);
  if (impl_->asked) impl_->helper.reset();  // It is busy with what nobody wants to know any more.
  if (!impl_->helper) return done();
  spawn_task(impl_->io.get_executor(), "logs_specs_end", impl_->wait_for_end(std::move(done)));
}

}  // namespace muster
