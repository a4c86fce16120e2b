// A session that has to find the host first: the session for that host takes part in the
// rendezvous.
#pragma once

#include <memory>
#include <string>

#include "agent/sessions/rendezvous_session.h"

namespace muster {

class SearchingSession : public RendezvousSession {
 public:
  void workers_failed(const std::string& what) override {
    if (inner_) inner_->workers_failed(what);
  }
  void finished(bool succeeded, const std::string& what) override {
    if (inner_) inner_->finished(succeeded, what);
  }
  void leave() override {
    if (inner_) inner_->leave();
  }
  void peer_reached(std::int64_t generation, int group_rank) override {
    if (inner_) inner_->peer_reached(generation, group_rank);
  }
  void report(const NodeReport& report) override {
    if (inner_) inner_->report(report);
  }

 protected:
  std::shared_ptr<RendezvousSession> inner_;  // Once the host was found.
};

}  // namespace muster
