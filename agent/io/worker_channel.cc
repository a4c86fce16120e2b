#include "agent/io/worker_channel.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "base/from_errno.h"
#include "base/system/clock.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
constexpr auto kRetryDelay = std::chrono::seconds(1);
constexpr std::size_t kReadBytes = 1024;
// Of all connections together, before the loop handles other events. Reads of this number can bring
// about 1,200 lines, whose parsing takes some milliseconds.
constexpr int kReadsPerTurn = 16;
// The workers get their signal after this time at the latest, however much they have sent.
constexpr auto kReadTimeAtNotice = std::chrono::milliseconds(50);

/// The user at the other end, if it is neither this user nor root; -1 if the kernel does not tell.
std::optional<std::int64_t> other_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return -1;
  if (peer.uid == ::geteuid() || peer.uid == 0) return std::nullopt;
  return peer.uid;
}
}  // namespace

// The pending operation keeps a connection alive. `channel_` is null once the connection is closed.
class WorkerChannel::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(WorkerChannel& channel, Protocol::socket socket)
      : channel_(&channel), socket_(std::move(socket)), lines_(channel.local_world_size_) {
    error_code ignored;  // A failure shows at the first use.
    socket_.non_blocking(true, ignored);
  }

  /// Waits until the worker has sent something. Then the channel reads it, in one of its turns.
  void wait() {
    socket_.async_wait(Protocol::socket::wait_read, [self = shared_from_this()](error_code ec) {
      if (self->channel_ == nullptr) return;
      if (ec) return self->finish("");
      self->channel_->enqueue(self);
    });
  }

  enum class Received { Bytes, Nothing, Closed };

  /// Handles at most kReadBytes of what the worker has sent. Closed: this connection is closed now.
  Received receive() {
    if (channel_ == nullptr) return Received::Closed;
    error_code ec;
    const std::size_t n = socket_.read_some(asio::buffer(chunk_), ec);
    if (ec == asio::error::would_block || ec == asio::error::interrupted) return Received::Nothing;
    if (ec) return finish(""), Received::Closed;
    const bool is_open = handle_bytes(std::string_view(chunk_.data(), n));
    return is_open ? Received::Bytes : Received::Closed;
  }

  /// The number of bytes that the worker has sent and the channel has not read.
  std::size_t waiting_bytes() const {
    error_code ignored;  // A failure shows at the next read.
    return socket_.available(ignored);
  }

  /// Handles the next `bytes` bytes, unless `until` comes first. Also notices the connection's end.
  void receive_until(Instant until, std::size_t bytes) {
    // The read after the last of the bytes finds the end.
    for (std::size_t reads = bytes / kReadBytes + 2; reads > 0 && now() < until; --reads)
      if (receive() != Received::Bytes) return;
  }

  /// Never waits: if the socket's buffer is full, the worker has not read for a long time, and the
  /// connection is closed.
  void send_notice(const WorkerNotice& notice) {
    const std::string line = preempt_line(notice, now());
    error_code ec;
    const auto sent = socket_.send(asio::buffer(line), MSG_NOSIGNAL | MSG_DONTWAIT, ec);
    if (ec || sent != line.size()) finish("it does not read");
  }

  std::optional<LocalRank> promised() const { return lines_.ends_itself(); }

  void detach() {
    channel_ = nullptr;
    error_code ignored;  // It may be closed already.
    socket_.close(ignored);
  }

 private:
  /// False if this connection is closed now, by this function or because of a handler.
  bool handle_bytes(std::string_view bytes) {
    lines_.add(bytes);
    while (const auto message = lines_.next()) {
      if (const auto* progress = std::get_if<WorkerProgress>(&*message))
        channel_->handlers_.on_progress(*progress);
      else
        channel_->saved(std::get<WorkerSaved>(*message), lines_.ends_itself().has_value());
      if (channel_ == nullptr) return false;
    }
    if (!lines_.error().empty()) return finish(lines_.error()), false;
    return true;
  }

  void finish(std::string_view why) {
    if (channel_ == nullptr) return;
    if (!why.empty())
      spdlog::warn("worker_channel_closed local_rank={} reason=\"{}\"",
                   lines_.rank().value_or(LocalRank{-1}).value, why);
    std::exchange(channel_, nullptr)->close(shared_from_this());
  }

  WorkerChannel* channel_;
  Protocol::socket socket_;
  WorkerLines lines_;
  std::array<char, kReadBytes> chunk_{};
};

Result<OwnedFd> WorkerChannel::listen_at(const std::string& path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (path.size() >= sizeof where.sun_path)
    return make_error_code(boost::system::errc::filename_too_long);
  path.copy(where.sun_path, path.size());
  OwnedFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return from_errno(errno);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
    return from_errno(errno);
  // Nobody can connect before listen(): the permissions are in time.
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) == 0 && ::listen(listener.get(), SOMAXCONN) == 0)
    return listener;
  const error_code error = from_errno(errno);
  ::unlink(path.c_str());
  return error;
}

WorkerChannel::WorkerChannel(asio::io_context& io, OwnedFd listener, std::string path,
                             int local_world_size, Handlers handlers)
    : path_(std::move(path)),
      local_world_size_(local_world_size),
      handlers_(std::move(handlers)),
      acceptor_(io),
      retry_(io),
      overdue_(io) {
  error_code ec;
  acceptor_.assign(Protocol(), listener.get(), ec);
  if (ec) {
    spdlog::warn("worker_channel_unavailable: {}", ec.message());
    return;
  }
  listener.release();
  acceptor_.non_blocking(true, ec);  // For Asio only: the descriptor is non-blocking already.
  accept();
}

WorkerChannel::~WorkerChannel() {
  for (const auto& connection : connections_)
    connection->detach();
}

void WorkerChannel::accept() {
  if (accepting_ || connections_.size() >= kMaxConnections) return;
  accepting_ = true;
  acceptor_.async_wait(Protocol::acceptor::wait_read,
                       [this, alive = std::weak_ptr(alive_)](error_code ec) {
                         if (alive.expired()) return;
                         accepting_ = false;
                         if (!ec) ec = accept_waiting();
                         if (ec) return retry_later(ec);
                         accept();
                       });
}

error_code WorkerChannel::accept_waiting() {
  while (connections_.size() < kMaxConnections) {
    error_code ec;
    Protocol::socket socket(acceptor_.get_executor());
    acceptor_.accept(socket, ec);
    if (ec == asio::error::would_block) return {};
    if (ec == asio::error::interrupted || ec == asio::error::connection_aborted) continue;
    if (ec) return ec;
    // The path's own permissions keep others out, unless somebody has changed them.
    if (const auto uid = other_user(socket.native_handle())) {
      refuse(*uid);
      continue;
    }
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    connections_.insert(connection);
    connection->wait();
    if (notice_) connection->send_notice(*notice_);
  }
  return {};
}

void WorkerChannel::refuse(std::int64_t uid) {
  if (refused_++ > 0) return;  // Logged once, however many follow.
  spdlog::warn(
      "worker_channel_refused uid={} advice=\"only this user's processes may use it: who has "
      "changed "
      "the permissions of {}?\"",
      uid, path_);
}

// Most likely no descriptors are left. That may pass; retrying at once would use a whole core.
void WorkerChannel::retry_later(const error_code& error) {
  if (std::exchange(accepting_, true)) return;  // A retry is pending already.
  spdlog::warn("worker_channel_accept_failed reason=\"{}\"", error.message());
  retry_.expires_after(kRetryDelay);
  retry_.async_wait([this, alive = std::weak_ptr(alive_)](error_code) {
    if (alive.expired()) return;
    accepting_ = false;
    accept();
  });
}

void WorkerChannel::close(const std::shared_ptr<Connection>& connection) {
  connection->detach();
  connections_.erase(connection);
  accept();
}

void WorkerChannel::saved(const WorkerSaved& saved, bool has_promised) {
  if (notice_ && has_promised) end_soon_.insert(saved.rank);
  handlers_.on_saved(saved);
}

void WorkerChannel::enqueue(std::shared_ptr<Connection> connection) {
  readable_.push_back(std::move(connection));
  if (!turn_pending_) post_turn();
}

// Asio looks for new events between two posted turns. So other events, such as the end of a worker,
// wait for one or two turns, not for all connections.
void WorkerChannel::post_turn() {
  asio::post(acceptor_.get_executor(), [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) read_turn();
  });
  turn_pending_ = true;  // If post() throws for lack of memory, the next message tries again.
}

void WorkerChannel::read_turn() {
  const std::weak_ptr alive(alive_);
  turn_pending_ = false;
  for (int reads = 0; reads < kReadsPerTurn && !readable_.empty(); ++reads) {
    const auto connection = std::move(readable_.front());
    readable_.pop_front();
    const auto received = connection->receive();
    if (alive.expired()) return;  // A handler has ended this channel.
    if (received != Connection::Received::Closed) connection->wait();
  }
  if (!readable_.empty() && !turn_pending_) post_turn();
}

// The connections with the fewest bytes come first: if the time is over before all is read, the
// messages of workers that flood the channel are left over.
void WorkerChannel::read_waiting() {
  // An error here occurs in accept() again, which handles it.
  [[maybe_unused]] const auto error = accept_waiting();
  struct Waiting {
    std::size_t bytes = 0;
    std::shared_ptr<Connection> connection;
  };
  std::vector<Waiting> all;
  all.reserve(connections_.size());
  for (const auto& connection : connections_)
    all.push_back({connection->waiting_bytes(), connection});
  std::sort(all.begin(), all.end(),
            [](const Waiting& a, const Waiting& b) { return a.bytes < b.bytes; });
  const Instant until = now() + kReadTimeAtNotice;
  for (const Waiting& next : all)
    next.connection->receive_until(until, next.bytes);
}

std::int64_t WorkerChannel::notify(WorkerNotice notice) {
  notice.id = ++notices_;
  notice_ = std::move(notice);
  const auto notified = connections_;  // A copy: send_notice() removes one that does not read.
  for (const auto& connection : notified)
    connection->send_notice(*notice_);
  return notices_;
}

void WorkerChannel::preempt(WorkerNotice notice) {
  const Instant deadline = notice.deadline;
  // A promise that was sent before the notice counts, even if the loop has not read it yet.
  read_waiting();
  notify(std::move(notice));
  std::set<LocalRank> promised = end_soon_;
  for (const auto& connection : connections_)
    if (const auto rank = connection->promised()) promised.insert(*rank);
  preemption_.notify(deadline, std::move(promised));
  if (!preemption_.next_deadline()) return;
  overdue_.expires_at(to_steady(deadline));
  overdue_.async_wait([this, alive = std::weak_ptr(alive_)](error_code ec) {
    if (ec || alive.expired()) return;
    for (const LocalRank rank : preemption_.overdue(now()))
      handlers_.on_overdue(rank);
  });
}

void WorkerChannel::reset() {
  preemption_.reset();
  notice_.reset();
  end_soon_.clear();
  overdue_.cancel();
  // Also closes connections that wait in the kernel's queue. An error occurs in accept() again.
  [[maybe_unused]] const auto error = accept_waiting();
  for (const auto& connection : connections_)
    connection->detach();
  connections_.clear();
  readable_.clear();
  accept();
}

}  // namespace muster
