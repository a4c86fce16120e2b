#include "agent/io/connection_watch.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/net/bounded_work.h"
#include "base/net/spawn_task.h"

namespace muster {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kTableBytesMax = std::size_t{16} << 20;
constexpr Duration kLookWithin = std::chrono::seconds(5);

std::string read_table(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> part{};
  while (text.size() < kTableBytesMax && (file.read(part.data(), part.size()), file.gcount() > 0))
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  return text;
}

/// The remote ends of this process's connections that are not answered yet.
std::set<std::string> connecting_to(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::map<std::string, std::string> remotes;  // By the name of the socket.
  for (const char* table : {"/net/tcp", "/net/tcp6"})
    for (ConnectingSocket& one : connecting_sockets(read_table(folder + table)))
      remotes.emplace("socket:[" + std::to_string(one.inode) + "]", std::move(one.remote));
  std::set<std::string> found;
  if (remotes.empty()) return found;  // As nearly always.
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator it(folder + "/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const auto socket = remotes.find(fs::read_symlink(it->path(), gone).string());
    if (!gone && socket != remotes.end()) found.insert(socket->second);
  }
  return found;
}

}  // namespace

ConnectionWatch::ConnectionWatch(asio::io_context& io, WorkerTable& workers)
    : io_(io), workers_(workers), timer_(io) {
  workers.observe(*this);
}

ConnectionWatch::~ConnectionWatch() {
  *alive_ = false;
}

void ConnectionWatch::attempt_begins() {
  detector_.begin_attempt();
}

void ConnectionWatch::worker_started(const RunningWorker&) {
  if (!std::exchange(is_watching_, true)) arm();
}

void ConnectionWatch::attempt_ends() {
  is_watching_ = false;
  timer_.cancel();
}

void ConnectionWatch::arm() {
  timer_.expires_after(detector_.pause());
  timer_.async_wait([this, alive = alive_](boost::system::error_code ec) {
    if (!ec && *alive && is_watching_) spawn_task(io_.get_executor(), "connections", look(alive));
  });
}

/// Reads the tables on another thread: a machine may have many sockets.
asio::awaitable<void> ConnectionWatch::look(std::shared_ptr<bool> alive) {
  const auto seen = std::make_shared<UnansweredDetector::Seen>();
  std::function<void()> work = [seen, running = workers_.running()] {
    for (const auto& [rank, pid] : running)
      for (const std::string& remote : connecting_to(pid))
        seen->emplace(rank, remote);
  };
  const boost::system::error_code failed = co_await run_in_time(std::move(work), kLookWithin);
  if (!*alive || !is_watching_) co_return;
  if (!failed)
    for (const auto& [rank, remote] : detector_.observe(std::move(*seen)))
      spdlog::warn(
          "local rank {} (pid {}) tries to connect to {}, which does not answer: is that machine "
          "up, does a firewall let the port through, and does the script leave MASTER_ADDR and "
          "MASTER_PORT as they are?",
          rank.value, workers_.pid_of(rank), remote);
  arm();
}

}  // namespace muster
