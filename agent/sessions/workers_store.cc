#include "agent/sessions/workers_store.h"

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

namespace muster {
namespace {

/// Free when it was looked at: between then and the worker's bind() another program may take it.
HostedStoreResult free_port(boost::asio::io_context& loop) {
  using boost::asio::ip::tcp;
  boost::system::error_code error;
  for (const tcp& family : {tcp::v6(), tcp::v4()}) {
    tcp::acceptor socket(loop);
    socket.open(family, error);
    if (!error) socket.bind({family, 0}, error);
    if (!error) return HostedStore{socket.local_endpoint().port()};
  }
  return ListenError{.call = "bind", .address = "any", .port = 0, .code = error};
}

}  // namespace

void WorkersStore::listen_at(const std::string& address) {
  const bool v6 = address.find(':') != std::string::npos;
  options_.addresses = {address, v6 ? "::1" : "127.0.0.1"};
  narrowed_ = true;
}

boost::system::result<std::unique_ptr<StoreThread>, ListenError> WorkersStore::start() {
  return StoreThread::start(options_, [this](const NativeReach& asked) {
    boost::asio::post(loop_, [this, asked] {
      if (on_reach_) on_reach_(asked);
    });
  });
}

void WorkersStore::prepare(const std::function<void(const HostedStoreResult&)>& done) {
  if (!shares_) return done(free_port(loop_));
  if (store_) {
    return store_->reset([this, done] {
      boost::asio::post(loop_, [this, done] { done(HostedStore{store_->port()}); });
    });
  }
  auto store = start();
  if (!store && narrowed_) {
    // The port that one address has free may be another program's at the other.
    spdlog::debug("workers_store_on_every_interface reason=\"{}\"", store.error().what());
    options_.addresses.clear();
    store = start();
  }
  if (!store) return done(store.error());
  store_ = std::move(*store);
  done(HostedStore{store_->port()});
}

}  // namespace muster
