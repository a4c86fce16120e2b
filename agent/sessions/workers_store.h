// The store that this agent hosts for the workers while its node is rank 0, or a port that it holds
// where rank 0's worker hosts the store itself.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "agent/sessions/rendezvous_session.h"
#include "agent/sessions/store_thread.h"

namespace muster {

class WorkersStore {
 public:
  /// `shares`: the agent hosts the store. Otherwise (torch's TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)
  /// prepare() only holds a free port for rank 0's worker, another one for each round.
  WorkersStore(boost::asio::io_context& loop, StoreServerOptions options, bool shares = true)
      : loop_(loop), options_(std::move(options)), shares_(shares), held_(loop) {}

  /// The store will listen only at this numeric address and on loopback, or on every interface if
  /// that fails. To be called before prepare().
  void listen_at(const std::string& address);

  /// Nodes must prove this token from now on. Those that have proven an older one stay.
  void set_token(const SharedTokenCrypto& token);

  /// The first call starts the store. Each further call empties it and keeps its port. `done` is
  /// called on the loop when the store is ready, immediately if there is nothing to wait for.
  void prepare(const std::function<void(const HostedStoreResult&)>& done);

  /// `on_reach` is called on the loop when the agent of another node asks whether the round is
  /// whole. set_reach_answer() sets the answer. To be called before prepare().
  void on_reach(std::function<void(const NativeReach&)> on_reach) {
    on_reach_ = std::move(on_reach);
  }
  void set_reach_answer(std::int64_t generation, std::optional<Instant> whole_at) {
    if (store_) store_->set_reach_answer(generation, whole_at);
  }

 private:
  boost::system::result<std::unique_ptr<StoreThread>, ListenError> start();
  HostedStoreResult hold_port();

  boost::asio::io_context& loop_;
  StoreServerOptions options_;
  bool shares_;
  std::function<void(const NativeReach&)> on_reach_;
  std::unique_ptr<StoreThread> store_;
  // Bound to the port of rank 0's worker, so that the kernel gives it to no other program. It never
  // listens.
  boost::asio::ip::tcp::acceptor held_;
  bool narrowed_ = false;  // listen_at() was called.
};

}  // namespace muster
