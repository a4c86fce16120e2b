#include "agent/logs/log_pump.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include <spdlog/spdlog.h>

#include "agent/logs/log_loop.h"
#include "rendezvous/core/check.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

constexpr int kPipeBytes = 1 << 20;  // As much as an ordinary user may ask for.
constexpr std::size_t kPointerBytes = sizeof(void*);
constexpr Duration kStopGrace = std::chrono::seconds(1);
constexpr Duration kDestructorLimit = std::chrono::seconds(1);

boost::system::error_code last_error() {
  return {errno, boost::system::system_category()};
}

// Both ends close-on-exec and above the standard streams, which may have been closed.
Result<std::array<LogFd, 2>> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return last_error();
  std::array<LogFd, 2> ends{LogFd(fds[0]), LogFd(fds[1])};
  for (LogFd& end : ends) {
    if (end.get() > 2) continue;
    end = LogFd(::fcntl(end.get(), F_DUPFD_CLOEXEC, 3));
    if (!end.is_open()) return last_error();
  }
  return ends;
}

Result<std::array<LogFd, 2>> make_worker_pipe() {
  auto pipe = make_pipe();
  if (!pipe) return pipe;
  ::fcntl((*pipe)[0].get(), F_SETFL, O_NONBLOCK);       // Of this end only.
  ::fcntl((*pipe)[1].get(), F_SETPIPE_SZ, kPipeBytes);  // Not to be had is no harm.
  return pipe;
}

}  // namespace

struct LogPump::Shared {
  std::unique_ptr<LogLoop> loop;
  std::promise<bool> ended;
};

Result<std::unique_ptr<LogPump>> LogPump::start(const Options& options) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  auto loop = LogLoop::open(options, std::move((*pipe)[0]));
  if (!loop) return loop.error();
  auto shared = std::make_shared<Shared>();
  shared->loop = std::move(*loop);

  // The thread takes no signal: those meant for the agent go to its main thread, and the SIGPIPE
  // of a closed console goes nowhere.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::unique_ptr<LogPump> pump(new LogPump(shared, std::move((*pipe)[1])));
  boost::system::error_code failure;
  try {
    pump->thread_ = std::thread([shared] {
      ::pthread_setname_np(::pthread_self(), "muster-logs");
      shared->ended.set_value(shared->loop->run());
    });
  } catch (const std::system_error& error) {
    failure = boost::system::error_code(error.code().value(), boost::system::system_category());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure) return failure;
  return pump;
}

LogPump::LogPump(std::shared_ptr<Shared> shared, LogFd mailbox)
    : shared_(std::move(shared)),
      mailbox_(std::move(mailbox)),
      ended_(shared_->ended.get_future()) {}

LogPump::~LogPump() {
  stop(kDestructorLimit);
}

void LogPump::post(Message message) {
  MUSTER_CHECK(thread_.joinable());  // Nothing after stop().
  auto* const pointer = new Message(std::move(message));
  ssize_t n = 0;
  do {
    n = ::write(mailbox_.get(), static_cast<const void*>(&pointer), kPointerBytes);
  } while (n < 0 && errno == EINTR);
  MUSTER_CHECK(
      n == static_cast<ssize_t>(kPointerBytes));  // The thread holds the other end until stop().
}

void LogPump::follow(FollowOptions options) {
  post([options = std::move(options)](LogLoop& loop) { loop.follow(options); });
}

Result<int> LogPump::tap(const TapOptions& options) {
  auto pipe = make_worker_pipe();
  if (!pipe) return pipe.error();
  auto [read_end, write_end] = std::move(*pipe);
  // std::function wants to be copied, which a descriptor does not.
  auto shared_end = std::make_shared<LogFd>(std::move(read_end));
  post([options, shared_end](LogLoop& loop) { loop.tap(options, std::move(*shared_end)); });
  return write_end.release();
}

Result<int> LogPump::record(std::string file) {
  auto pipe = make_worker_pipe();
  if (!pipe) return pipe.error();
  auto shared_end = std::make_shared<LogFd>(std::move((*pipe)[0]));
  post([file = std::move(file), shared_end](LogLoop& loop) {
    loop.record(file, std::move(*shared_end));
  });
  return (*pipe)[1].release();
}

void LogPump::keep_tail_of(LocalRank worker, std::string stderr_file) {
  post([worker, file = std::move(stderr_file)](LogLoop& loop) { loop.keep_tail_of(worker, file); });
}

void LogPump::keep(std::string file) {
  post([file = std::move(file)](LogLoop& loop) { loop.keep(file); });
}

void LogPump::tail(LocalRank worker, std::function<void(std::string)> done) {
  post([worker, done = std::move(done)](LogLoop& loop) { done(loop.tail(worker)); });
}

void LogPump::catch_up(Duration limit, std::function<void()> done) {
  post([deadline = now() + limit, done = std::move(done)](LogLoop& loop) {
    loop.catch_up(deadline, done);
  });
}

void LogPump::finish(Duration limit, std::function<void(FinishReport)> done) {
  post([deadline = now() + limit, done = std::move(done)](LogLoop& loop) {
    loop.finish(deadline, done);
  });
}

bool LogPump::stop(Duration limit) {
  if (!thread_.joinable()) return true;
  post([deadline = now() + limit](LogLoop& loop) { loop.stop(deadline); });
  if (ended_.wait_for(limit + kStopGrace) == std::future_status::ready) {
    thread_.join();
    return ended_.get();
  }
  shared_->loop->abandon();
  spdlog::warn("log_thread_left_behind reason=\"it hangs in a read or write\"");
  thread_.detach();
  return false;
}

}  // namespace muster
