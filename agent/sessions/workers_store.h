// The store that this agent hosts for the workers while it is rank 0.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/store_thread.h"

namespace muster {

class WorkersStore {
 public:
  WorkersStore(boost::asio::io_context& loop, StoreServerOptions options)
      : loop_(loop), options_(std::move(options)) {}

  /// Empty, and listening on the same port as ever: it begins with the first call, and forgets
  /// everything with each further one. `done` is called on the loop, at once if nothing is to be
  /// waited for.
  void prepare(const std::function<void(const HostedStoreResult&)>& done);

 private:
  boost::asio::io_context& loop_;
  StoreServerOptions options_;
  std::unique_ptr<StoreThread> store_;
};

}  // namespace muster
