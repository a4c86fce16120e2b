#include "agent/io/worker_channel.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "rendezvous/net/clock.h"

namespace muster {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
constexpr auto kRetryDelay = std::chrono::seconds(1);
}  // namespace

// Kept alive by the operation that is under way. `channel_` is empty once it is closed.
class WorkerChannel::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(WorkerChannel& channel, Protocol::socket socket)
      : channel_(&channel), socket_(std::move(socket)) {
    error_code ignored;  // A socket that cannot be made so breaks at its first use.
    socket_.non_blocking(true, ignored);
  }

  void read() {
    socket_.async_read_some(
        asio::buffer(chunk_),
        [self = shared_from_this()](error_code ec, std::size_t n) { self->on_read(ec, n); });
  }

  /// Never waits: a worker whose buffer is full has not read for a long time, and is let go.
  void send_notice(Instant deadline) {
    const std::chrono::duration<double> left = std::max(Duration{}, deadline - now());
    std::array<char, 80> line{};
    const int size = std::snprintf(line.data(), line.size(),
                                   "{\"type\":\"preempt\",\"deadline_s\":%.3f}\n", left.count());
    error_code ec;
    const auto sent = socket_.send(asio::buffer(line.data(), static_cast<std::size_t>(size)),
                                   MSG_NOSIGNAL | MSG_DONTWAIT, ec);
    if (ec || sent != static_cast<std::size_t>(size)) finish("it does not read");
  }

  void detach() {
    channel_ = nullptr;
    error_code ignored;  // What is closed already is closed.
    socket_.close(ignored);
  }

 private:
  void on_read(error_code ec, std::size_t n) {
    if (channel_ == nullptr) return;
    if (ec) return finish("");
    buffer_.append(chunk_.data(), n);
    std::size_t begin = 0;
    for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
      if (!take_line(std::string_view(buffer_).substr(begin, end - begin))) return;
      begin = end + 1;
    }
    buffer_.erase(0, begin);
    if (buffer_.size() > kMaxLineBytes) return finish("a line is too long");
    read();
  }

  /// False if this connection is closed now, by us or by whom the handler called.
  bool take_line(std::string_view line) {
    const auto message = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto type = message.is_object() ? message.find("type") : message.end();
    if (!message.is_object() || type == message.end() || !type->is_string())
      return finish("a line is no JSON object with a type"), false;
    if (*type == "hello") return take_hello(message);
    if (*type != "progress") return true;  // Of a later version of the protocol.
    if (!rank_) return finish("progress before hello"), false;
    channel_->on_progress_(*rank_);
    return channel_ != nullptr;
  }

  bool take_hello(const nlohmann::json& message) {
    const auto rank = message.find("local_rank");
    if (rank_ || rank == message.end() || !rank->is_number_integer() ||
        !channel_->is_local_rank(rank->get<std::int64_t>()))
      return finish("a hello without a local rank of this node, or a second one"), false;
    rank_ = LocalRank{rank->get<int>()};
    return true;
  }

  void finish(const char* why) {
    if (channel_ == nullptr) return;
    if (*why != '\0')
      spdlog::warn("worker_channel_closed local_rank={} reason=\"{}\"", rank_ ? rank_->value : -1,
                   why);
    std::exchange(channel_, nullptr)->close(shared_from_this());
  }

  WorkerChannel* channel_;
  Protocol::socket socket_;
  std::optional<LocalRank> rank_;
  std::array<char, 1024> chunk_{};
  std::string buffer_;  // Less than one line.
};

WorkerChannel::WorkerChannel(asio::io_context& io, std::string path, int local_world_size,
                             OnProgress on_progress)
    : path_(std::move(path)),
      local_world_size_(local_world_size),
      on_progress_(std::move(on_progress)),
      acceptor_(io),
      retry_(io) {}

Result<std::unique_ptr<WorkerChannel>> WorkerChannel::open(asio::io_context& io, std::string path,
                                                           int local_world_size,
                                                           OnProgress on_progress) {
  std::unique_ptr<WorkerChannel> channel(
      new WorkerChannel(io, std::move(path), local_world_size, std::move(on_progress)));
  if (const error_code ec = channel->listen()) return ec;
  channel->accept();
  return channel;
}

error_code WorkerChannel::listen() {
  error_code ec;
  Protocol::endpoint where;
  if (path_.size() >= where.capacity())  // The endpoint's constructor would throw.
    return make_error_code(boost::system::errc::filename_too_long);
  where.path(path_);
  acceptor_.open(Protocol(), ec);
  if (ec) return ec;
  acceptor_.bind(where, ec);
  if (ec) return ec;
  bound_ = true;
  // Nobody can connect before listen().
  if (::chmod(path_.c_str(), S_IRUSR | S_IWUSR) != 0)
    return error_code(errno, boost::system::system_category());
  acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  return ec;
}

WorkerChannel::~WorkerChannel() {
  for (const auto& connection : connections_)
    connection->detach();
  if (bound_) ::unlink(path_.c_str());
}

void WorkerChannel::accept() {
  if (accepting_ || connections_.size() >= kMaxConnections) return;
  accepting_ = true;
  acceptor_.async_accept(
      [this, alive = std::weak_ptr(alive_)](error_code ec, Protocol::socket socket) {
        if (alive.expired()) return;
        if (ec) return retry_later(ec);
        accepting_ = false;
        const auto connection = std::make_shared<Connection>(*this, std::move(socket));
        connections_.insert(connection);
        connection->read();
        if (deadline_) connection->send_notice(*deadline_);
        accept();
      });
}

// No descriptors left, most likely: that may pass, and asking at once again would take a core.
void WorkerChannel::retry_later(const error_code& error) {
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

void WorkerChannel::preempt(Instant deadline) {
  deadline_ = deadline;
  const auto told = connections_;  // One that does not read leaves the set.
  for (const auto& connection : told)
    connection->send_notice(deadline);
}

void WorkerChannel::reset() {
  deadline_.reset();
  for (const auto& connection : connections_)
    connection->detach();
  connections_.clear();
  accept();
}

}  // namespace muster
