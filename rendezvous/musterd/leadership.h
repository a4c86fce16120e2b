// One of several musterds that share an etcd. It stands by until it is elected as the leader. When
// it has lost the leadership, it restarts its process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/state/etcd/etcd_state.h"

namespace muster {

/// Must be used on the thread of `loop`, or while the loop does not run. Must end before the loop.
class Leadership {
 public:
  enum class End {
    Leads,     // This musterd is the leader: state() may be served.
    Stopped,   // Other code has stopped the loop.
    Unusable,  // The records in etcd cannot be read. The reason was printed to stderr.
  };
  /// `argv` is main()'s, for a restart of the process. It must live as long as this object.
  Leadership(boost::asio::io_context& loop, const EtcdStateOptions& options, char** argv);

  /// Runs the loop until one of these events.
  End stand_by();
  /// musterd ends: from now on a lost leadership does not start it again.
  void stopping() { stopping_ = true; }
  /// Why this musterd does not lead, as a text for people.
  const std::string& standing_by() const { return standing_by_; }
  const std::shared_ptr<RunState>& state() const { return state_; }

 private:
  void on_standing_by(const std::string& why);
  void on_lost(const std::string& why);

  boost::asio::io_context& loop_;
  char** argv_;
  End end_ = End::Stopped;
  bool stopping_ = false;
  std::string standing_by_ = "standing by";
  std::shared_ptr<RunState> state_;
};

}  // namespace muster
