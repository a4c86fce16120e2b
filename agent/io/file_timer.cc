#include "agent/io/file_timer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/signal_name.h"
#include "agent/io/owned_name.h"
#include "agent/posix/find_program.h"
#include "agent/posix/helper_process.h"
#include "rendezvous/core/from_errno.h"
#include "rendezvous/net/clock.h"

namespace muster {
namespace {

namespace asio = boost::asio;

constexpr std::string_view kFile = "TORCHELASTIC_TIMER_FILE=";
constexpr std::size_t kReadBytes = 65536;  // What a pipe holds.
constexpr int kReadsAtOnce = 16;           // Then others have their turn.
constexpr std::size_t kShownBytes = 200;   // Of a line that is wrong.
constexpr std::size_t kMaxOwnerless = 256;

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Nothing in it that could command a terminal.
std::string shown(std::string_view line) {
  std::string text(line.substr(0, kShownBytes));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return line.size() > kShownBytes ? text + "…" : text;
}

}  // namespace

// --- the pipe ------------------------------------------------------------------------------------

std::optional<TimerFifo> TimerFifo::choose(std::vector<std::string>& environment) {
  const auto variable = [&environment](std::string_view name) {
    return std::string(environment_value(environment, name).value_or(""));
  };
  if (variable("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return std::nullopt;
  TimerFifo fifo;
  fifo.path_ = variable("TORCHELASTIC_TIMER_FILE");
  if (fifo.path_.empty()) {
    const std::string dir = variable("TMPDIR");
    fifo.path_ = (dir.empty() ? "/tmp" : dir) + "/" + owned_name();
    fifo.names_owner_ = true;
    std::erase_if(environment, [](const std::string& entry) { return entry.starts_with(kFile); });
    environment.push_back(std::string(kFile) + fifo.path_);
  }
  return fifo;
}

boost::system::error_code TimerFifo::make() {
  struct stat old {};
  if (::lstat(path_.c_str(), &old) == 0) {
    if (!S_ISFIFO(old.st_mode)) return from_errno(EEXIST);
    ::unlink(path_.c_str());
  }
  if (::mkfifo(path_.c_str(), 0600) != 0) return from_errno(errno);
  constexpr int kFlags = O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
  fd_ = OwnedFd(::open(path_.c_str(), kFlags));
  if (fd_.is_open()) return {};
  const int error = errno;
  ::unlink(path_.c_str());
  return from_errno(error);
}

void TimerFifo::remove() const {
  struct stat there {};
  struct stat made {};
  if (::lstat(path_.c_str(), &there) != 0 || ::fstat(fd_.get(), &made) != 0) return;
  if (there.st_dev == made.st_dev && there.st_ino == made.st_ino) ::unlink(path_.c_str());
}

void TimerFifo::remove_unread() const {
  struct stat there {};
  if (::lstat(path_.c_str(), &there) != 0 || !S_ISFIFO(there.st_mode)) return;
  const OwnedFd writer(::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!writer.is_open() && errno == ENXIO) ::unlink(path_.c_str());
}

void TimerFifo::tidy_after_dead_owners() const {
  if (names_owner_) remove_what_dead_owners_left(path_.substr(0, path_.rfind('/')));
}

// --- the timers ----------------------------------------------------------------------------------

FileTimer::FileTimer(asio::io_context& io, WorkerTable& workers, const TimerFifo& fifo,
                     OnExpired on_expired)
    : workers_(workers),
      pipe_(io, fifo.fd()),
      timer_(io),
      on_expired_(std::move(on_expired)),
      buffer_(kReadBytes) {
  workers.observe(*this);
  wait_to_read();
}

void FileTimer::worker_started(const RunningWorker&) {
  // It may have asked, and its time may have run out, before its start was told here.
  std::erase_if(ownerless_, [this](const ExpiredTimer& timer) { return carry_out(timer); });
}

void FileTimer::worker_ended(const RunningWorker& worker, const WorkerExit&) {
  table_.forget(worker.pid);
  arm();
}

void FileTimer::attempt_begins() {
  drain(false);
  lines_ = {};
  ownerless_.clear();
  table_.clear();
  arm();
}

void FileTimer::wait_to_read() {
  pipe_.async_wait(asio::posix::descriptor_base::wait_read, [this](boost::system::error_code ec) {
    if (ec || !drain(true)) return;
    arm();
    wait_to_read();
  });
}

bool FileTimer::drain(bool keep) {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t n = ::read(pipe_.native_handle(), buffer_.data(), buffer_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) {
      spdlog::error("the timers' pipe cannot be read any more: {}", from_errno(errno).message());
      return false;
    }
    if (!keep) continue;
    for (const std::string& line : lines_.take({buffer_.data(), static_cast<std::size_t>(n)}))
      take(line);
  }
  return true;
}

void FileTimer::take(const std::string& line) {
  const auto complain = [this, &line](std::string_view why) {
    if (const auto left_out = complaints_.admit(now(), "timer line", {}))
      spdlog::warn("a line in the timers' pipe is ignored, {}: {}{}", why, shown(line),
                   *left_out == 0 ? "" : fmt::format(" (and {} before)", *left_out));
  };
  const auto request = parse_timer_request(line);
  if (!request) return complain(request.error().text);
  if (table_.take(*request, now(), wall_clock_s())) return;
  make_room();
  if (!table_.take(*request, now(), wall_clock_s())) complain("there are too many timers");
}

// Timers of processes that have ended without calling them off.
void FileTimer::make_room() {
  const std::set<pid_t> leaders = workers_.pids();
  for (const int pid : table_.pids())
    if (signal_family_member(pid, leaders, 0) == 0) table_.forget(pid);
}

void FileTimer::arm() {
  const auto deadline = table_.next_deadline();
  if (deadline == armed_) return;
  armed_ = deadline;
  timer_.cancel();
  if (!deadline) return;
  timer_.expires_at(std::chrono::steady_clock::time_point(deadline->time_since_epoch()));
  timer_.async_wait([this](boost::system::error_code ec) {
    if (!ec) look();
  });
}

void FileTimer::look() {
  armed_.reset();
  // What was called off in time counts, also if it has not been read yet.
  drain(true);
  for (const ExpiredTimer& timer : table_.expire(now())) {
    if (carry_out(timer)) continue;
    spdlog::info("timer \"{}\" of process {} ran out: it is no process of a worker, or over",
                 shown(timer.scope), timer.pid);
    if (ownerless_.size() < kMaxOwnerless) ownerless_.push_back(timer);
  }
  arm();
}

bool FileTimer::carry_out(const ExpiredTimer& timer) {
  const pid_t leader = signal_family_member(timer.pid, workers_.pids(), std::max(timer.signal, 0));
  if (leader == 0) return false;
  Expired expired{.pid = timer.pid,
                  .is_worker = leader == timer.pid,
                  .scope = shown(timer.scope),
                  .signal = timer.signal};
  for (const auto& [rank, pid] : workers_.running())
    if (pid == leader) expired.rank = rank;
  const std::string who = fmt::format("local rank {} (pid {})", expired.rank.value, leader);
  const std::string what = timer.signal > 0
                               ? signal_name(timer.signal) + " was sent"
                               : std::string("it asked for no signal, so nothing is done");
  if (expired.is_worker)
    spdlog::warn("timer \"{}\" of {} ran out: {}", expired.scope, who, what);
  else
    spdlog::warn("timer \"{}\" of process {} of {} ran out: {}", expired.scope, timer.pid, who,
                 what);
  on_expired_(expired);
  return true;
}

}  // namespace muster
