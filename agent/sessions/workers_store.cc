#include "agent/sessions/workers_store.h"

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

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

void WorkersStore::prepare(const std::function<void(const HostedStoreResult&)>& done) {
  if (!shares_) return done(free_port(loop_));
  if (store_) {
    return store_->reset([this, done] {
      boost::asio::post(loop_, [this, done] { done(HostedStore{store_->port()}); });
    });
  }
  auto store = StoreThread::start(options_, [this](const NativeReach& asked) {
    boost::asio::post(loop_, [this, asked] {
      if (on_reach_) on_reach_(asked);
    });
  });
  if (!store) return done(store.error());
  store_ = std::move(*store);
  done(HostedStore{store_->port()});
}

}  // namespace muster
