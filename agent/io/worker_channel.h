// The socket over which workers report progress, and get the notice that they will have to stop.
//
// docs/worker_channel.md has the protocol. Nothing that a worker sends can block the loop, use
// memory without bound or end the agent: a connection that breaks a rule is closed. The loop reads
// the connections in turns: each turn reads little, so that other events have their turns, too.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/core/preemption.h"
#include "agent/core/worker_lines.h"
#include "agent/core/worker_notice.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/system/owned_fd.h"
#include "base/time.h"

namespace muster {

class WorkerChannel {
 public:
  /// Open connections at a time. The next one waits in the kernel's queue until one is closed.
  static constexpr std::size_t kMaxConnections = 1024;

  /// Called on the loop, or from within preempt(); never by the constructor.
  struct Handlers {
    /// A worker of this node has reported progress, or the end of its progress.
    std::function<void(const WorkerProgress&)> on_progress;
    /// The notice's deadline has come for a worker that had promised to end by itself.
    std::function<void(LocalRank)> on_overdue;
    /// A worker of this node says that it has saved its work.
    std::function<void(const WorkerSaved&)> on_saved;
  };

  /// For the constructor: a socket that listens at `path`, which only this user may open. Fails if
  /// the path is taken, or with its final zero longer than the 108 bytes that the kernel has for
  /// it. May wait for the path's storage: not to be called on the loop.
  static Result<OwnedFd> listen_at(const std::string& path);

  WorkerChannel(boost::asio::io_context& io, OwnedFd listener, std::string path,
                int local_world_size, Handlers handlers);
  /// Closes all connections, and does not remove the path. Callbacks that are still in the loop's
  /// queue do nothing.
  ~WorkerChannel();
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  /// The value of MUSTER_WORKER_CHANNEL in the workers' environment.
  const std::string& path() const { return path_; }

  /// Notifies all workers, also those that connect later, and changes nothing else. Returns the
  /// number that the notice gets. A notice replaces the one before it.
  std::int64_t notify(WorkerNotice notice);
  /// For a stop that begins now: as notify(), and workers that have promised to end by themselves
  /// get no signal until the notice's deadline: those whose connection is open, and those that have
  /// answered the notice before this one. Does read_waiting() first.
  void preempt(WorkerNotice notice);

  /// Handles what the workers have sent so far, for 50 ms at most.
  void read_waiting();

  /// The notice of this attempt, and the workers that had promised before it to end by themselves.
  const Preemption& preemption() const { return preemption_; }

  /// The attempt is over: closes its connections, and sends its notice to nobody any more.
  void reset();

 private:
  class Connection;
  using Protocol = boost::asio::local::stream_protocol;

  void accept();
  boost::system::error_code accept_waiting();
  void refuse(std::int64_t uid);
  void retry_later(const boost::system::error_code& error);
  void close(const std::shared_ptr<Connection>& connection);
  void saved(const WorkerSaved& saved, bool has_promised);
  void enqueue(std::shared_ptr<Connection> connection);
  void post_turn();
  void read_turn();

  const std::string path_;
  const int local_world_size_;
  const Handlers handlers_;
  Protocol::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  boost::asio::steady_timer overdue_;
  bool accepting_ = false;
  std::uint64_t refused_ = 0;  // Connections of other users.
  Preemption preemption_;
  std::optional<WorkerNotice> notice_;  // The last one of this attempt.
  std::int64_t notices_ = 0;            // In all attempts.
  /// Workers that have answered the notice after their promise: as they end, their connections are
  /// closed before they are dead, and the promise stays.
  std::set<LocalRank> end_soon_;
  std::set<std::shared_ptr<Connection>> connections_;
  // Connections with something to read, in order. One that was closed meanwhile may still be here.
  std::deque<std::shared_ptr<Connection>> readable_;
  bool turn_pending_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Expires with this object.
};

}  // namespace muster
