// --rdzv-backend static: torchrun's protocol without a rendezvous. Every node has its rank from the
// command line, node rank 0 hosts the one store at the endpoint, the workers use the same store.
//
// As under torchrun a failure restarts the workers of this node only, the other nodes learn nothing
// of it, and restarted workers find the keys of the last attempt: whoever wants restarts across
// nodes takes the c10d backend. What differs:
// - the exit barrier ends at once for a node that is told to go;
// - waits say for which nodes, and whoever hosts does not wait blindly for a number of connections.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "agent/sessions/rendezvous_session.h"

namespace muster {

struct StaticSessionOptions {
  std::string run_id = {};
  std::string host = {};  // The workers' MASTER_ADDR, and where node rank 0 is.
  std::uint16_t port = 0;
  int node_rank = 0;
  int nodes = 1;  // --nnodes; of a range, the maximum.
  std::string role = {};
  int local_world_size = 1;
  bool worker_identical = false;  // TORCH_ELASTIC_WORKER_IDENTICAL=1
  Duration timeout = std::chrono::seconds(900);
  Duration exit_barrier = std::chrono::seconds(300);  // torchrun's.
};

class StaticSession final : public RendezvousSession {
 public:
  /// Everything happens on `executor`, which one thread runs; the store of node rank 0 has a thread
  /// of its own and serves until the session is destroyed. Of the handlers, on_restart and
  /// host_store are never called.
  StaticSession(boost::asio::any_io_executor executor, StaticSessionOptions options,
                Handlers handlers);
  ~StaticSession() override;

  void join() override;
  void workers_failed(const std::string& what) override;
  void finished(bool succeeded, const std::string& what) override;
  void leave() override;
  void close() override;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace muster
