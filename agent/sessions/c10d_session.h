// The rendezvous of a run whose store a torchrun node hosts: torchrun's c10d protocol as a client.
//
// What differs from a torchrun node in the same place:
// - the connection with the store may be lost while workers run: they go on, and the session
//   connects again in the background; only a new round needs the store;
// - keep-alives have a connection of their own, so that no wait makes the others take us for dead;
// - a closed run is noticed while workers run: if no node had come to the exit barrier, a node has
//   given up, and the run is over;
// - in the exit barrier, a node that wants another round is not held up: this one leaves.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

#include "agent/sessions/rendezvous_session.h"
#include "rendezvous/core/settings.h"

namespace muster {

struct C10dSessionOptions {
  std::string host = {};  // Of the endpoint: a name is resolved again for every try.
  std::uint16_t port = 0;
  RendezvousSettings settings = {};
  std::string local_addr = {};  // --local-addr; empty: our end of the connection.
  std::string role = {};
  int local_world_size = 1;
  bool worker_identical = false;                      // TORCH_ELASTIC_WORKER_IDENTICAL=1
  Duration exit_barrier = std::chrono::seconds(300);  // torchrun's.
};

class C10dSession final : public RendezvousSession {
 public:
  /// Everything happens on `executor`, which one thread runs, and nothing before join(). The
  /// handlers must live until close(). `host_store` may be called again for each round, and its
  /// `done` on any thread.
  C10dSession(boost::asio::any_io_executor executor, C10dSessionOptions options, Handlers handlers);
  ~C10dSession() override;  // close()

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
