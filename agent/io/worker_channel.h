// The socket on which workers say that they get on, and hear that they will have to stop.
//
// docs/worker_channel.md has the protocol. Nothing that a worker sends can hold the loop up, grow
// without bound or end the agent: a connection that breaks a rule is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/core/ids.h"
#include "rendezvous/core/result.h"
#include "rendezvous/core/time.h"
#include "rendezvous/net/owned_fd.h"

namespace muster {

class WorkerChannel {
 public:
  /// Connections at a time; the next one waits in the kernel's queue until one is closed.
  static constexpr std::size_t kMaxConnections = 1024;

  /// From the loop, never from within open().
  struct Handlers {
    /// A worker of this node has reported progress, and perhaps said which step it has done.
    std::function<void(LocalRank, std::optional<std::int64_t> step)> on_progress;
    /// A worker of this node will report no more.
    std::function<void(LocalRank)> on_progress_end;
    /// The notice's deadline has come; this is one of those that ends_itself() named.
    std::function<void(LocalRank)> on_overdue;
  };

  /// A socket that listens at `path`, which only this user may open, for the constructor. Fails if
  /// the path is taken or, with its end, longer than the 108 bytes that the kernel has for it. The
  /// path's storage may make it wait, so it is no work for the loop.
  static Result<OwnedFd> listen_at(const std::string& path);

  WorkerChannel(boost::asio::io_context& io, OwnedFd listener, std::string path,
                int local_world_size, Handlers handlers);
  /// Closes all connections; the path stays. Handlers that the loop still runs do nothing.
  ~WorkerChannel();
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  /// What workers find in MUSTER_WORKER_CHANNEL.
  const std::string& path() const { return path_; }

  /// Tells all workers, also those that connect later, that they have until `deadline`.
  void preempt(Instant deadline);

  /// Whether this worker had the notice, and had promised before to end by itself when it comes:
  /// no signal is to be sent to it before on_overdue.
  bool ends_itself(LocalRank rank) const { return held_.contains(rank); }

  /// The attempt is over: its connections are closed, and a notice is no longer handed out.
  void reset();

 private:
  class Connection;
  using Protocol = boost::asio::local::stream_protocol;

  void accept();
  boost::system::error_code accept_waiting();
  void refuse(std::int64_t uid);
  void retry_later(const boost::system::error_code& error);
  void close(const std::shared_ptr<Connection>& connection);

  const std::string path_;
  const int local_world_size_;
  const Handlers handlers_;
  Protocol::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  boost::asio::steady_timer overdue_;
  bool accepting_ = false;
  std::uint64_t refused_ = 0;  // Connections of other users.
  std::optional<Instant> deadline_;
  std::set<LocalRank> held_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Gone when this is.
};

}  // namespace muster
