#include "muster/agent.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "notice_lines.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, as in the agent.

constexpr auto kLeastBetweenReports = std::chrono::milliseconds(100);

// The connection of this process to the agent. It is made at the first use, and never again: if the
// agent has ended, this process will end, too.
class Channel {
 public:
  Channel() { connect(); }
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void report(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (fd_ < 0 || (last_report_ && now - *last_report_ < kLeastBetweenReports)) return;
    if (is_half_full()) return;
    last_report_ = now;
    send("{\"type\":\"progress\",\"step\":" + std::to_string(step) + "}\n");
  }

  void end_reports() {
    const std::lock_guard lock(mutex_);
    if (fd_ >= 0 && std::exchange(last_report_, std::nullopt))
      send("{\"type\":\"progress_end\"}\n");
  }

  void promise_end() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(promised_, true) && fd_ >= 0) send("{\"type\":\"ends_itself\"}\n");
  }

  std::optional<AgentNotice> notice() {
    const std::lock_guard lock(mutex_);
    receive();
    return notices_.notice();
  }

  void answer_notice() {
    const std::lock_guard lock(mutex_);
    receive();
    if (fd_ < 0) return;
    // Without a number the answer is to the notice of another rank.
    const std::string id =
        notices_.notice() ? ",\"id\":" + std::to_string(notices_.notice()->id) : std::string();
    send("{\"type\":\"saved\"" + id + "}\n");
  }

  bool is_open() {
    const std::lock_guard lock(mutex_);
    return fd_ >= 0;
  }

 private:
  void connect() {
    const char* path = std::getenv("MUSTER_WORKER_CHANNEL");
    const char* rank = std::getenv("LOCAL_RANK");
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    if (path == nullptr || *path == '\0' || std::strlen(path) >= sizeof where.sun_path) return;
    std::strncpy(where.sun_path, path, sizeof where.sun_path - 1);
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) return;
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
      return close();
    send("{\"type\":\"hello\",\"local_rank\":" + std::to_string(rank ? std::atoi(rank) : 0) +
         "}\n");
  }

  // Whether the agent has not read for a long time. Reports leave the other half of the socket's
  // buffer to the lines that must not be lost: ends_itself, which is sent once, and progress_end,
  // which is sent once after a report.
  bool is_half_full() const {
    int queued_bytes = 0;
    int capacity_bytes = 0;
    socklen_t size = sizeof capacity_bytes;
    return ::ioctl(fd_, SIOCOUTQ, &queued_bytes) == 0 &&
           ::getsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &capacity_bytes, &size) == 0 &&
           queued_bytes > capacity_bytes / 2;
  }

  // If the socket accepts only a part of a line, closes the channel: the agent could not read the
  // next line.
  void send(const std::string& line) {
    const ssize_t sent = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0 && static_cast<std::size_t>(sent) < line.size()) return close();
    if (sent < 0 && errno != EAGAIN && errno != EINTR) close();
  }

  void receive() {
    char chunk[512];
    while (fd_ >= 0) {
      const ssize_t got = ::recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return close();
      if (!notices_.add({chunk, static_cast<std::size_t>(got)})) return close();
    }
  }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  std::mutex mutex_;
  int fd_ = -1;
  bool promised_ = false;
  NoticeLines notices_;
  std::optional<Clock::time_point> last_report_;
};

Channel& channel() {
  static Channel instance;
  return instance;
}

}  // namespace

bool available() {
  return channel().is_open();
}

void progress(std::int64_t step) {
  channel().report(step);
}

void progress_end() {
  channel().end_reports();
}

void ends_itself() {
  channel().promise_end();
}

std::optional<AgentNotice> notice() {
  return channel().notice();
}

void saved() {
  channel().answer_notice();
}

std::int64_t generation() {
  const char* const text = std::getenv("MUSTER_GENERATION");
  std::int64_t number = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

void report_progress(std::int64_t step) {
  progress(step);
}

void end_progress() {
  progress_end();
}

std::optional<Clock::time_point> preemption_deadline() {
  ends_itself();
  const auto last = notice();
  return last ? std::optional(last->deadline) : std::nullopt;
}

}  // namespace muster
