// The rendezvous of a job with one node: no network and no waiting.
#pragma once

#include <string>
#include <utility>

#include "agent/sessions/rendezvous_session.h"

namespace muster {

class LocalSession final : public RendezvousSession {
 public:
  /// `master_addr`: the address where this node's workers find the store.
  LocalSession(Handlers handlers, int local_world_size, std::string master_addr)
      : handlers_(std::move(handlers)),
        local_world_size_(local_world_size),
        master_addr_(std::move(master_addr)) {}

  void join() override;
  void workers_failed(const std::string&) override {}
  void finished(bool succeeded, const std::string&) override {
    handlers_.on_end({.succeeded = succeeded, .failed_node = "", .why = ""});
  }
  void leave() override {}
  void close() override { handlers_ = {}; }

 private:
  Handlers handlers_;
  int local_world_size_;
  std::string master_addr_;
  std::int64_t round_ = 0;
  std::int64_t generation_ = 0;
};

}  // namespace muster
