// The rendezvous of a job with one node: no network and no waiting.
#pragma once

#include <string>
#include <utility>

#include <boost/asio/any_io_executor.hpp>

#include "agent/sessions/own_notice.h"
#include "agent/sessions/rendezvous_session.h"

namespace muster {

class LocalSession final : public RendezvousSession {
 public:
  /// `master_addr`: the address where this node's workers find the store.
  LocalSession(const boost::asio::any_io_executor& executor, Handlers handlers,
               int local_world_size, std::string master_addr);

  void join() override;
  void workers_failed(const WorkersFailure&) override { notice_.round_ends(); }
  void finished(bool succeeded, const std::string&) override {
    notice_.cancel();
    handlers_.on_end({.succeeded = succeeded, .failed_node = "", .why = ""});
  }
  void leave() override { notice_.cancel(); }
  void notify(const NodeNotice& notice) override { notice_.give(notice); }
  /// There is no other node to wait for.
  void saved() override { notice_.finish(); }
  void close() override {
    notice_.cancel();
    handlers_ = {};
  }

 private:
  Handlers handlers_;
  int local_world_size_;
  std::string master_addr_;
  std::int64_t round_ = 0;
  std::int64_t generation_ = 0;
  OwnNotice notice_;
};

}  // namespace muster
