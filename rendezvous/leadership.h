// One of several musterds that share an etcd: it stands by, leads when it can, and starts anew when
// it has lost that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/etcd/etcd_state.h"

namespace muster {

/// On the thread of `loop`, or while it does not run. Ends before the loop.
class Leadership {
 public:
  enum class End {
    Leads,     // state() may be served.
    Stopped,   // Somebody has stopped the loop.
    Unusable,  // What etcd has cannot be read, which was said on stderr.
  };
  /// `argv`: of main(), for a new start. Lives as long as this object.
  Leadership(boost::asio::io_context& loop, EtcdStateOptions options, char** argv);

  /// Runs the loop until one of these.
  End stand_by();
  /// For people: why it does not lead.
  const std::string& standing_by() const { return standing_by_; }
  const std::shared_ptr<RunState>& state() const { return state_; }

 private:
  void on_standing_by(const std::string& why);
  void on_lost(const std::string& why);

  boost::asio::io_context& loop_;
  char** argv_;
  End end_ = End::Stopped;
  std::string standing_by_ = "standing by";
  std::shared_ptr<RunState> state_;
};

}  // namespace muster
