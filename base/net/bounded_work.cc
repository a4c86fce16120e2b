#include "base/net/bounded_work.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/from_errno.h"
#include "base/net/no_throw.h"
#include "base/system/owned_fd.h"
#include "base/system/thread_without_signals.h"

namespace muster {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;
using boost::system::error_code;

namespace {

/// Shared by the coroutine and the thread. The last of both that ends destroys it.
struct Pending {
  explicit Pending(std::function<void()> to_do)
      : work(std::move(to_do)), returned(::eventfd(0, EFD_CLOEXEC)) {}

  const std::function<void()> work;
  OwnedFd returned;               // Readable when `work` has returned.
  std::atomic<bool> done{false};  // Until it is set, only the thread may use the results of `work`.
};

/// Starts the thread. Returns whether it has started.
bool begin(const std::shared_ptr<Pending>& pending) {
  try {
    thread_without_signals([pending] {
      pending->work();
      pending->done.store(true, std::memory_order_release);
      ::eventfd_write(pending->returned.get(), 1);
    }).detach();
    return true;
  } catch (const std::exception&) {  // No thread, or no memory for it.
    return false;
  }
}

}  // namespace

asio::awaitable<error_code> run_in_time(std::function<void()> work, Duration limit) {
  const auto executor = co_await asio::this_coro::executor;
  const auto pending = std::make_shared<Pending>(std::move(work));
  const int readable = ::dup(pending->returned.get());
  if (readable < 0) co_return from_errno(errno);
  asio::posix::stream_descriptor returned(executor, readable);
  if (!begin(pending))
    co_return make_error_code(boost::system::errc::resource_unavailable_try_again);
  asio::steady_timer timer(executor, limit);
  const auto wait = asio::posix::stream_descriptor::wait_read;
  const auto first = co_await (returned.async_wait(wait, kNoThrow) || timer.async_wait(kNoThrow));
  const auto* ready = std::get_if<0>(&first);
  if (ready == nullptr) co_return make_error_code(boost::system::errc::timed_out);
  const error_code cancelled = std::get<0>(*ready);
  if (!cancelled && !pending->done.load(std::memory_order_acquire))
    co_return make_error_code(boost::system::errc::timed_out);
  co_return cancelled;
}

asio::awaitable<bool> reread_in_time(std::shared_ptr<std::atomic<bool>> reading,
                                     std::function<void()> read) {
  constexpr Duration kMaxRead = std::chrono::milliseconds(500);
  if (reading->exchange(true)) co_return false;
  std::function<void()> work = [reading, read = std::move(read)] {
    read();
    reading->store(false);
  };
  const error_code ec = co_await run_in_time(std::move(work), kMaxRead);
  if (ec && ec != boost::system::errc::timed_out) reading->store(false);  // There was no thread.
  co_return !ec;
}

}  // namespace muster
