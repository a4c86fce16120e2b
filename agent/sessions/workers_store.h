// The store that this agent hosts for the workers while it is rank 0, or the port where they host
// it themselves.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/store_thread.h"

namespace muster {

class WorkersStore {
 public:
  /// `shares`: there is a store; else only a port that is free (torch's
  /// TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1), another one for each round, for rank 0's worker to
  /// take.
  WorkersStore(boost::asio::io_context& loop, StoreServerOptions options, bool shares = true)
      : loop_(loop), options_(std::move(options)), shares_(shares) {}

  /// Listens at this numeric address and on loopback only; before prepare(). Where it cannot, on
  /// every interface.
  void listen_at(const std::string& address);

  /// Empty, and listening on the same port as ever: it begins with the first call, and forgets
  /// everything with each further one. `done` is called on the loop, at once if nothing is to be
  /// waited for.
  void prepare(const std::function<void(const HostedStoreResult&)>& done);

  /// `on_reach` is called on the loop when the agent of another node asks whether the round is
  /// whole; what it is answered is said by vouch(). Before prepare().
  void on_reach(std::function<void(const NativeReach&)> on_reach) {
    on_reach_ = std::move(on_reach);
  }
  void vouch(std::int64_t generation, std::optional<Instant> whole_at) {
    if (store_) store_->vouch(generation, whole_at);
  }

 private:
  boost::system::result<std::unique_ptr<StoreThread>, ListenError> start();

  boost::asio::io_context& loop_;
  StoreServerOptions options_;
  bool shares_;
  std::function<void(const NativeReach&)> on_reach_;
  std::unique_ptr<StoreThread> store_;
  bool narrowed_ = false;  // By listen_at().
};

}  // namespace muster
