#include "agent/io/file_timer.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/signal_name.h"
#include "agent/posix/find_program.h"
#include "agent/posix/helper_process.h"
#include "base/from_errno.h"
#include "base/system/clock.h"
#include "base/system/same_file.h"

namespace muster {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kPieceBytes = 65536;        // The usual capacity of a pipe.
constexpr int kMaxPieces = 16;            // The largest capacity that a user may set, 1 MiB.
constexpr std::size_t kShownBytes = 200;  // Of an invalid line, in the log.
constexpr std::size_t kMaxOwnerless = 256;

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Without control characters, which could command a terminal.
std::string shown(std::string_view line) {
  std::string text(line.substr(0, kShownBytes));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return line.size() > kShownBytes ? text + "…" : text;
}

}  // namespace

// --- the pipe ------------------------------------------------------------------------------------

std::optional<TimerFifo> TimerFifo::choose(const std::vector<std::string>& environment) {
  const auto variable = [&environment](std::string_view name) {
    return std::string(environment_value(environment, name).value_or(""));
  };
  if (variable("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return std::nullopt;
  TimerFifo fifo;
  fifo.path_ = variable("TORCHELASTIC_TIMER_FILE");
  fifo.is_given_ = !fifo.path_.empty();
  if (!fifo.is_given_)
    fifo.folder_ = TemporaryFolder::choose(TemporaryFolder::Content::Pipe, variable);
  return fifo;
}

error_code TimerFifo::create(std::string& what_failed) {
  if (is_given_) {
    what_failed = path_;
    return create_pipe();
  }
  const error_code error = folder_.create([this](const std::string& folder) {
    path_ = folder + "/timers";
    return create_pipe();
  });
  what_failed = "in " + folder_.places();
  return error;
}

error_code TimerFifo::create_pipe() {
  struct stat old {};
  if (::lstat(path_.c_str(), &old) == 0) {
    if (!S_ISFIFO(old.st_mode)) return from_errno(EEXIST);
    ::unlink(path_.c_str());
  }
  if (::mkfifo(path_.c_str(), 0600) != 0) return from_errno(errno);
  constexpr int kFlags = O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
  lost_fd_ = std::exchange(fd_, OwnedFd(::open(path_.c_str(), kFlags)));
  if (fd_.is_open()) return {};
  const int error = errno;
  ::unlink(path_.c_str());
  return from_errno(error);
}

std::string TimerFifo::fallback() const {
  const std::string passed_over = folder_.passed_over();
  if (passed_over.empty()) return {};
  return "cannot use " + passed_over + " for the timers' pipe: it goes to " + folder_.place();
}

bool TimerFifo::is_lost() const {
  struct stat there {};
  return ::lstat(path_.c_str(), &there) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

void TimerFifo::remove() const {
  struct stat current {};
  struct stat created {};
  const bool is_own = ::lstat(path_.c_str(), &current) == 0 && ::fstat(fd_.get(), &created) == 0 &&
                      is_same_file(current, created);
  close_pipes();
  if (is_own) ::unlink(path_.c_str());
  folder_.remove(false);
}

/// An NFS client keeps a file that is removed while it is open (as .nfs…), and so its folder. The
/// reader has the descriptors until its own end: they become /dev/null.
void TimerFifo::close_pipes() const {
  const OwnedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const OwnedFd* pipe : {&fd_, &lost_fd_})
    if (null.is_open() && pipe->is_open()) ::dup3(null.get(), pipe->get(), O_CLOEXEC);
}

void TimerFifo::remove_unread() const {
  struct stat there {};
  if (::lstat(path_.c_str(), &there) == 0 && S_ISFIFO(there.st_mode)) {
    const OwnedFd writer(::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!writer.is_open() && errno == ENXIO) ::unlink(path_.c_str());
  }
  folder_.remove(false);
}

// --- the timers ----------------------------------------------------------------------------------

FileTimer::FileTimer(asio::io_context& io, WorkerTable& workers, const TimerFifo& fifo,
                     OnExpired on_expired)
    : workers_(workers),
      pipe_(io, fifo.fd()),
      timer_(io),
      on_expired_(std::move(on_expired)),
      buffer_(kPieceBytes) {
  workers.observe(*this);
  wait_to_read();
}

void FileTimer::read_pipe(const TimerFifo& fifo) {
  pipe_.release();
  pipe_.assign(fifo.fd());
  ++pipes_;  // A handler of the old wait may be queued already.
  wait_to_read();
}

void FileTimer::worker_started(const RunningWorker&) {
  // This worker may have set a timer, and it may have run out, before the start was reported.
  std::erase_if(ownerless_, [this](const ExpiredTimer& timer) { return signal_owner(timer); });
}

void FileTimer::worker_ended(const RunningWorker& worker, const WorkerExit&) {
  table_.remove(worker.pid);
  arm();
}

void FileTimer::attempt_begins() {
  for (int i = 0; i < kMaxPieces; ++i)
    if (read_piece().value_or(0) == 0) break;
  lines_ = {};
  ownerless_.clear();
  table_.clear();
  arm();
}

// Handles one piece of the pipe, so that other events have their turn while workers flood the pipe.
// If there is more in the pipe, the next wait ends at once.
void FileTimer::wait_to_read() {
  pipe_.async_wait(asio::posix::descriptor_base::wait_read,
                   [this, pipe = pipes_](boost::system::error_code ec) {
                     if (ec || pipe != pipes_ || !handle_piece()) return;
                     arm();
                     wait_to_read();
                   });
}

std::optional<std::size_t> FileTimer::read_piece() {
  for (;;) {
    const ssize_t n = ::read(pipe_.native_handle(), buffer_.data(), buffer_.size());
    if (n > 0) return static_cast<std::size_t>(n);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return 0;
    spdlog::error("the timers' pipe cannot be read any more: {}", from_errno(errno).message());
    return std::nullopt;
  }
}

bool FileTimer::handle_piece() {
  const std::optional<std::size_t> bytes = read_piece();
  if (!bytes) return false;
  for (const std::string& line : lines_.feed({buffer_.data(), *bytes}))
    handle_line(line);
  return true;
}

void FileTimer::handle_line(const std::string& line) {
  const auto complain = [this, &line](std::string_view why) {
    if (const auto left_out = complaints_.admit(now(), "timer line", {}))
      spdlog::warn("a line in the timers' pipe is ignored, {}: {}{}", why, shown(line),
                   *left_out == 0 ? "" : fmt::format(" (and {} before)", *left_out));
  };
  const auto request = parse_timer_request(line);
  if (!request) return complain(request.error().text);
  if (table_.apply(*request, now(), wall_clock_s())) return;
  if (table_.may_make_room(now())) {
    make_room();
    if (table_.apply(*request, now(), wall_clock_s())) return;
  }
  complain("there are too many timers");
}

// Forgets the timers of processes that have ended without cancelling them.
void FileTimer::make_room() {
  const std::set<pid_t> leaders = workers_.pids();
  for (const int pid : table_.pids())
    if (signal_family_member(pid, leaders, 0) == 0) table_.remove(pid);
}

void FileTimer::arm() {
  const auto deadline = table_.next_deadline();
  if (deadline == armed_) return;
  armed_ = deadline;
  timer_.cancel();
  if (!deadline) return;
  timer_.expires_at(std::chrono::steady_clock::time_point(deadline->time_since_epoch()));
  timer_.async_wait([this](boost::system::error_code ec) {
    if (!ec) expire_timers();
  });
}

void FileTimer::expire_timers() {
  armed_.reset();
  // A timer that was cancelled in time does not expire, even if the request is not read yet:
  // handles what is in the pipe now. A pipe of the usual capacity takes one piece.
  int waiting_bytes = 0;
  ::ioctl(pipe_.native_handle(), FIONREAD, &waiting_bytes);
  waiting_bytes = std::min(waiting_bytes, kMaxPieces * kPieceBytes);
  for (; waiting_bytes > 0 && handle_piece(); waiting_bytes -= kPieceBytes) {
  }
  for (const ExpiredTimer& timer : table_.expire(now())) {
    if (signal_owner(timer)) continue;
    spdlog::info(
        "timer \"{}\" of process {} ran out, but that process has ended or belongs to no worker; "
        "nothing is killed",
        shown(timer.scope), timer.pid);
    if (ownerless_.size() < kMaxOwnerless) ownerless_.push_back(timer);
  }
  arm();
}

bool FileTimer::signal_owner(const ExpiredTimer& timer) {
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
