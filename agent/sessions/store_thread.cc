#include "agent/sessions/store_thread.h"

#include <system_error>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

#include "base/from_errno.h"
#include "base/net/guarded_loop.h"

namespace muster {

namespace asio = boost::asio;

boost::system::result<std::unique_ptr<StoreThread>, ListenError> StoreThread::start(
    StoreServerOptions options, std::function<void(const NativeReach&)> on_reach) {
  std::unique_ptr<StoreThread> store(new StoreThread);
  if (on_reach)
    options.reach = [self = store.get(), on_reach = std::move(on_reach)](const NativeReach& asked) {
      on_reach(asked);
      const bool same = asked.generation != 0 && asked.generation == self->whole_generation_;
      return same ? self->whole_at_ : std::nullopt;
    };
  const std::uint16_t port = options.port;
  try {
    store->server_ = std::make_unique<StoreServer>(store->io_, std::move(options));
  } catch (const boost::system::system_error& error) {
    // Asio opens descriptors for io_ when it is first used.
    return ListenError{.call = "event loop",
                       .address = "any",
                       .port = port,
                       .code = from_errno(error.code().value())};
  }
  if (const auto listening = store->server_->start(); !listening) return listening.error();
  store->port_ = store->server_->port();
  try {
    store->thread_ = std::thread([&io = store->io_] {
      const auto work = asio::make_work_guard(io);
      run_guarded(io, "store");
    });
  } catch (const std::system_error& error) {  // The user, or the cgroup, has no process left.
    return ListenError{.call = "pthread_create",
                       .address = "any",
                       .port = store->port_,
                       .code = from_errno(error.code().value())};
  }
  return store;
}

StoreThread::~StoreThread() {
  if (!thread_.joinable()) return;
  io_.stop();
  thread_.join();
}

boost::system::result<std::string, ListenError> StoreThread::serve_http(
    const http::HttpAddress& address, http::HttpDoor door) {
  door.nodes_port = port_;
  auto started = http::HttpServer::start(address, std::move(door), io_, [store = server_.get()] {
    return http::HttpSource{.store = store};
  });
  if (!started) return started.error();
  http_ = std::move(*started);
  return {boost::system::in_place_value, http_->url()};
}

void StoreThread::stop() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    server_->stop();
    io_.stop();
  });
  thread_.join();
}

void StoreThread::reset(std::function<void()> done) {
  asio::post(io_, [this, done = std::move(done)] {
    server_->reset();
    done();
  });
}

void StoreThread::set_reach_answer(std::int64_t generation, std::optional<Instant> whole_at) {
  asio::post(io_, [this, generation, whole_at] {
    whole_generation_ = generation;
    whole_at_ = whole_at;
  });
}

void StoreThread::set_run_tokens(HostTokens::OfRuns tokens) {
  asio::post(io_, [this, tokens = std::move(tokens)]() mutable {
    server_->set_run_tokens(std::move(tokens));
  });
}

void StoreThread::drain(Instant deadline, std::function<void()> done) {
  asio::post(io_, [this, deadline, done = std::move(done)]() mutable {
    server_->drain(deadline, std::move(done));
  });
}

}  // namespace muster
