// A store thread goes on after an exception in a request.

#include "agent/sessions/store_thread.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "agent/sessions/call_within.h"
#include "base/net/guarded_loop.h"
#include "base/net/spawn_task.h"
#include "base/system/clock.h"
#include "base/system/owned_fd.h"
#include "tests/system/rendezvous/store_server_fixture.h"

namespace muster::testing {
namespace {

/// Collects the log of the process during its lifetime.
class KeptLog {
 public:
  KeptLog() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~KeptLog() { spdlog::set_default_logger(previous_); }
  KeptLog(const KeptLog&) = delete;
  KeptLog& operator=(const KeptLog&) = delete;
  std::string text() {
    spdlog::default_logger()->flush();
    return text_.str();
  }

 private:
  std::shared_ptr<spdlog::logger> previous_ = spdlog::default_logger();
  std::ostringstream text_;
};

TEST_CASE("store thread: an exception is logged, and the store continues to serve", "[sessions]") {
  KeptLog log;
  {
    auto started = StoreThread::start({.addresses = {"127.0.0.1"}});
    REQUIRE(started.has_value());
    StoreThread& store = **started;
    Client before(store.port());
    REQUIRE(before.alive());
    store.reset([] { throw std::runtime_error("the first one"); });
    std::promise<void> again;
    store.reset([&] { again.set_value(); });
    again.get_future().wait();
    CHECK(Client(store.port()).alive());
  }
  CHECK_THAT(log.text(), Catch::Contains("handler_failed loop=store error=\"the first one\""));
}

/// Calls `work` in a child process. Returns the child's status, which is 0 if `work` returns true.
int in_child(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(work() ? 0 : 1);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

/// The calling process cannot make threads from now on.
bool refuse_threads() {
  constexpr uid_t kNobody = 65534;
  const rlimit none{0, 0};
  return ::setrlimit(RLIMIT_NPROC, &none) == 0 &&
         (::geteuid() != 0 || ::setuid(kNobody) == 0);  // Root has no limit.
}

/// The calling process can open `more` descriptors from now on.
bool limit_descriptors(rlim_t more) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(OwnedFd(::dup(STDIN_FILENO)).get()) + more;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

boost::asio::awaitable<void> failing_task() {
  throw std::runtime_error("no room");
  co_return;
}

TEST_CASE("store thread: at the limit of processes it does not start, and the process goes on",
          "[sessions]") {
  CHECK(in_child([] {
          if (!refuse_threads()) return false;
          const auto started = StoreThread::start({.addresses = {"127.0.0.1"}});
          return !started && started.error().call == "pthread_create" &&
                 started.error().code == boost::system::errc::resource_unavailable_try_again;
        }) == 0);
}

// Not with UBSan: it opens a pipe to check that an object's memory can be read, and without a
// descriptor for the pipe it reports an error that is none.
#ifndef MUSTER_WITH_UBSAN
TEST_CASE("store thread: without enough descriptors it does not start, and says what to raise",
          "[sessions]") {
  for (const int more : {0, 1, 2, 3, 4, 5, 6}) {
    INFO(more);
    CHECK(in_child([more] {
            if (!limit_descriptors(static_cast<rlim_t>(more))) return false;
            const auto started = StoreThread::start({.addresses = {"127.0.0.1"}});
            if (started) return more > 2;  // The event loop alone needs two.
            return started.error().what().find("raise it with `ulimit -n`") != std::string::npos;
          }) == 0);
  }
}
#endif

TEST_CASE("spawn task: an exception is on stderr before the process ends", "[sessions]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const int status = in_child([&ends] {
    KeptLog log;  // As in the agent: the log's lines are not on stderr yet when the process ends.
    ::signal(SIGABRT, SIG_DFL);  // Catch has a handler.
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(ends[1], STDERR_FILENO);
    boost::asio::io_context loop{1};
    spawn_task(loop.get_executor(), "test", failing_task());
    loop.run();
    return false;
  });
  ::close(ends[1]);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
  std::string text(4096, '\0');
  const ssize_t bytes = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  CHECK_THAT(text, Catch::Contains("task_failed task=test error=\"no room\"\n"));
}

TEST_CASE("store thread: a thread that hangs does not delay the end of the session", "[sessions]") {
  auto started = StoreThread::start({.addresses = {"127.0.0.1"}});
  REQUIRE(started.has_value());
  StoreThread& store = **started;
  std::promise<void> release;
  store.reset([&] { release.get_future().wait(); });
  boost::asio::io_context loop{1};
  int ends = 0;
  call_within(
      loop, std::chrono::milliseconds(10), [&] { ++ends; },
      [&](const std::function<void()>& finish) {
        const auto work = boost::asio::make_work_guard(loop);
        store.drain(now(), [&loop, work, finish] { boost::asio::post(loop, finish); });
      });
  while (ends == 0)
    loop.run_one();
  release.set_value();
  loop.run();  // The late answer of the store arrives, and nothing ends twice.
  CHECK(ends == 1);
}

TEST_CASE("store thread: a store is drained when its last client has left", "[sessions]") {
  auto started = StoreThread::start({.addresses = {"127.0.0.1"}});
  REQUIRE(started.has_value());
  StoreThread& store = **started;
  std::promise<void> drained;
  auto done = drained.get_future();
  std::array<std::optional<Client>, 2> clients;
  for (auto& client : clients) {
    client.emplace(store.port());
    REQUIRE(client->alive());
  }
  store.drain(now() + std::chrono::hours(1), [&] { drained.set_value(); });
  clients[0].reset();
  CHECK(done.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  CHECK(clients[1]->alive());  // The store still serves.
  clients[1].reset();
  CHECK(done.wait_for(std::chrono::seconds(120)) == std::future_status::ready);
}

TEST_CASE("call within: an answer in time ends it, and cancels the limit", "[sessions]") {
  boost::asio::io_context loop{1};
  int ends = 0;
  call_within(
      loop, std::chrono::hours(1), [&] { ++ends; },
      [](const std::function<void()>& finish) { finish(); });
  loop.run();
  CHECK(ends == 1);
}

TEST_CASE("guarded loop: it continues after exceptions, and limits its log lines", "[sessions]") {
  KeptLog log;
  boost::asio::io_context loop{1};
  constexpr int kHandlers = 1000;
  int served = 0;
  for (int i = 0; i < kHandlers; ++i)
    boost::asio::post(loop, [&served] {
      ++served;
      throw std::runtime_error("no room");
    });
  run_guarded(loop, "test");
  CHECK(served == kHandlers);
  const std::string text = log.text();
  CHECK(std::count(text.begin(), text.end(), '\n') < 200);
}

}  // namespace
}  // namespace muster::testing
