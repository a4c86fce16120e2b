#include "agent/logs/log_pump.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "agent/logs/log_loop.h"
#include "base/from_errno.h"
#include "base/system/clock.h"
#include "base/system/pseudo_terminal.h"
#include "base/system/thread_without_signals.h"

namespace muster {
namespace {

constexpr Duration kStopGrace = std::chrono::seconds(1);
constexpr Duration kDestructorLimit = std::chrono::seconds(1);

// Both ends are close-on-exec and above 2: the standard streams may have been closed.
Result<std::array<OwnedFd, 2>> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return from_errno(errno);
  std::array<OwnedFd, 2> ends{OwnedFd(fds[0]), OwnedFd(fds[1])};
  for (OwnedFd& end : ends) {
    if (end.get() > 2) continue;
    end = OwnedFd(::fcntl(end.get(), F_DUPFD_CLOEXEC, 3));
    if (!end.is_open()) return from_errno(errno);
  }
  return ends;
}

}  // namespace

struct LogPump::Shared {
  std::unique_ptr<LogLoop> loop;
  std::promise<bool> ended;
  std::vector<std::unique_ptr<LogMessage>> abandoned;  // Written by abandon() only.
};

Result<std::unique_ptr<LogPump>> LogPump::start(const Options& options) {
  auto mailbox = std::make_shared<LogMailbox>();
  if (mailbox->error() != 0) return from_errno(mailbox->error());
  auto loop = LogLoop::open(options, mailbox);
  if (!loop) return loop.error();
  auto shared = std::make_shared<Shared>();
  shared->loop = std::move(*loop);

  std::unique_ptr<LogPump> pump(new LogPump(options.stderr_fd, shared, std::move(mailbox)));
  try {
    // Without signals: those for the agent go to its main thread, and a SIGPIPE of a closed console
    // has no effect.
    pump->thread_ = thread_without_signals([shared] {
      ::pthread_setname_np(::pthread_self(), "muster-logs");
      shared->ended.set_value(shared->loop->run());
    });
  } catch (const std::system_error& error) {
    return from_errno(error.code().value());
  }
  return pump;
}

LogPump::LogPump(int stderr_fd, std::shared_ptr<Shared> shared, std::shared_ptr<LogMailbox> mailbox)
    : stderr_fd_(stderr_fd),
      shared_(std::move(shared)),
      mailbox_(std::move(mailbox)),
      ended_(shared_->ended.get_future()) {}

LogPump::~LogPump() {
  stop(kDestructorLimit);
}

void LogPump::post(std::function<void(LogLoop&)> act) {
  mailbox_->post(std::move(act));
}

void LogPump::catch_up(Duration limit) {
  post([deadline = now() + limit](LogLoop& loop) { loop.catch_up(deadline); });
}

void LogPump::follow(FollowOptions options) {
  post([options = std::move(options)](LogLoop& loop) { loop.follow(options); });
}

Result<OwnedFd> LogPump::pipe(PipeOptions options) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  ::fcntl((*pipe)[0].get(), F_SETFL, O_NONBLOCK);  // Only this end: the worker's end blocks.
  resize_pipe((*pipe)[1].get(), options.bytes);
  // std::function must be copyable, and a descriptor is not.
  auto shared_end = std::make_shared<OwnedFd>(std::move((*pipe)[0]));
  post([options = std::move(options), shared_end, reserve = reserve_](LogLoop& loop) {
    reserve->keep(shared_end->get(), options.bytes);
    loop.add_pipe(std::move(*shared_end), options);
  });
  return std::move((*pipe)[1]);
}

Result<LogTerminal> LogPump::terminal(PipeOptions options) {
  auto made = open_pseudo_terminal(stderr_fd_);
  if (!made) return made.error();
  LogTerminal terminal{std::move(made->worker),
                       OwnedFd(::fcntl(made->reader.get(), F_DUPFD_CLOEXEC, 3))};
  if (!terminal.spare_reader.is_open()) return from_errno(errno);
  auto shared_end = std::make_shared<OwnedFd>(std::move(made->reader));
  post([options = std::move(options), shared_end](LogLoop& loop) {
    loop.add_pipe(std::move(*shared_end), options);
  });
  return terminal;
}

void LogPump::run(std::function<void()> job, std::function<void()> done) {
  post([job = std::move(job), done = std::move(done)](LogLoop&) {
    job();
    if (done) done();
  });
}

void LogPump::end_attempt(std::function<void(const Tails&)> done) {
  post([done = std::move(done), reserve = reserve_](LogLoop& loop) {
    reserve->begin_attempt();
    loop.end_attempt(done);
  });
}

void LogPump::finish(Duration pipe_limit, std::function<void(FinishReport)> done) {
  post([deadline = now() + pipe_limit, done = std::move(done)](LogLoop& loop) {
    loop.finish(deadline, done);
  });
}

void LogPump::flush(std::function<void(ShownReport)> done) {
  post([done = std::move(done)](LogLoop& loop) { loop.flush_all(done); });
}

void LogPump::hurry() {
  post([](LogLoop& loop) { loop.hurry(); });
}

Duration LogPump::blocked_for() const {
  return shared_->loop->blocked_for();
}

bool LogPump::stop(Duration limit) {
  if (!thread_.joinable()) return true;
  post([deadline = now() + limit](LogLoop& loop) { loop.stop(deadline); });
  if (ended_.wait_for(limit + kStopGrace) == std::future_status::ready) {
    thread_.join();
    return ended_.get();
  }
  abandon();
  return false;
}

std::vector<std::unique_ptr<LogMessage>> LogPump::abandon() {
  shared_->loop->abandon();
  if (thread_.joinable()) thread_.detach();
  std::vector<std::unique_ptr<LogMessage>> lines;
  // A call may own files, and closing them may hang, too: only the thread itself may destroy it.
  while (auto message = mailbox_->take())
    (message->act ? shared_->abandoned : lines).push_back(std::move(message));
  return lines;
}

}  // namespace muster
