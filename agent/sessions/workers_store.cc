#include "agent/sessions/workers_store.h"

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

namespace muster {
namespace {

using boost::asio::ip::tcp;

/// Binds `socket` to a free port of every address, IPv4 and IPv6 where the machine has it.
boost::system::error_code bind_to_free_port(tcp::acceptor& socket) {
  boost::system::error_code error;
  for (const tcp& family : {tcp::v6(), tcp::v4()}) {
    socket.close(error);
    socket.open(family, error);
    // Lets rank 0 bind the port, too. Its store sets the same option, as PyTorch's stores do.
    if (!error) socket.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && family == tcp::v6()) socket.set_option(boost::asio::ip::v6_only(false), error);
    if (!error) socket.bind({family, 0}, error);
    if (!error) break;
  }
  return error;
}

}  // namespace

void WorkersStore::listen_at(const std::string& address) {
  const bool v6 = address.find(':') != std::string::npos;
  options_.addresses = {address, v6 ? "::1" : "127.0.0.1"};
  narrowed_ = true;
}

void WorkersStore::set_token(const SharedTokenCrypto& token) {
  options_.token = token;
  if (store_) store_->set_run_tokens({{options_.token_run, token}});
}

boost::system::result<std::unique_ptr<StoreThread>, ListenError> WorkersStore::start() {
  return StoreThread::start(options_, [this](const NativeReach& asked) {
    boost::asio::post(loop_, [this, asked] {
      if (on_reach_) on_reach_(asked);
    });
  });
}

HostedStoreResult WorkersStore::hold_port() {
  if (const boost::system::error_code error = bind_to_free_port(held_))
    return ListenError{.call = "bind", .address = "any", .port = 0, .code = error};
  return HostedStore{held_.local_endpoint().port()};
}

void WorkersStore::prepare(const std::function<void(const HostedStoreResult&)>& done) {
  if (!shares_) return done(hold_port());
  if (store_) {
    return store_->reset([this, done] {
      boost::asio::post(loop_, [this, done] { done(HostedStore{store_->port()}); });
    });
  }
  auto store = start();
  if (!store && options_.admit && options_.addresses.empty()) {
    // Another program has the port at an address of this machine, or not every address may be
    // bound. The workers need loopback only, unless their script says otherwise.
    spdlog::debug("workers_store_on_loopback reason=\"{}\"", store.error().what());
    options_.addresses = {"127.0.0.1"};
    store = start();
  }
  if (!store && narrowed_) {
    // The kernel chooses the port for one address. At the other address another program may have
    // it.
    spdlog::debug("workers_store_on_every_interface reason=\"{}\"", store.error().what());
    options_.addresses.clear();
    store = start();
  }
  if (!store) return done(store.error());
  store_ = std::move(*store);
  done(HostedStore{store_->port()});
}

}  // namespace muster
