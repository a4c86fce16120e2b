#include "agent/logs/log_streams.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

#include <spdlog/spdlog.h>

#include "base/limit_advice.h"
#include "base/system/clock.h"

namespace muster {
namespace {

constexpr std::size_t kMaxFilteredBytes = 1 << 20;      // In memory, until they are written.
constexpr std::size_t kMaxFilteredLineBytes = 1 << 20;  // Filters see no more bytes of a line.

// O_NONBLOCK: the open of a FIFO does not wait for a writer.
OwnedFd open_to_read(const std::string& path) {
  constexpr mode_t kMode = 0666;
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, kMode));
  if (!fd.is_open())
    spdlog::warn("log_not_opened path=\"{}\" reason=\"{}{}\"", path,
                 std::generic_category().message(errno), limit_advice(errno));
  return fd;
}

std::int64_t size_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_size : 0;
}

std::size_t waiting_bytes(int pipe) {
  int bytes = 0;
  return ::ioctl(pipe, FIONREAD, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

std::string_view TurnTime::text() {
  if (text_.empty()) {
    timespec time{};
    ::clock_gettime(CLOCK_REALTIME, &time);
    tm local{};
    ::localtime_r(&time.tv_sec, &local);
    char text[64];
    std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03ld", local.tm_hour, local.tm_min,
                  local.tm_sec, time.tv_nsec / 1'000'000);
    text_ = text;
  }
  return text_;
}

FollowedFile::FollowedFile(FollowOptions options, std::shared_ptr<LogFilterFile> filtered,
                           LogOutput& output, TurnTime& time)
    : options_(std::move(options)),
      filtered_(std::move(filtered)),
      output_(output),
      stream_(output.merger.add_stream()),
      time_(time),
      fd_(open_to_read(options_.file)),
      assembler_(options_.limits) {
  if (options_.written_here) options_.written_here->add_reader(*this);
}

FollowedFile::~FollowedFile() {
  if (options_.written_here) options_.written_here->remove_reader(*this);
}

bool FollowedFile::read(Instant now, std::vector<char>& buffer) {
  if (!fd_.is_open() && unwritten_.empty()) return false;
  for (std::size_t total = 0; total < kBytesPerTurn;) {
    std::size_t wanted = buffer.size();
    if (!unwritten_.empty()) {
      const std::int64_t before = unwritten_.front().skipped.offset - offset_;
      wanted = std::min(wanted, static_cast<std::size_t>(std::max<std::int64_t>(before, 0)));
    }
    const ssize_t n = wanted == 0 ? 0 : ::pread(fd_.get(), buffer.data(), wanted, offset_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 && !unwritten_.empty()) {  // Also if the file cannot be read up to these bytes.
      total += unwritten_.front().bytes.size();
      show_unwritten(now);
      continue;
    }
    if (n <= 0) {
      const std::int64_t size = size_of(fd_.get());
      if (n < 0 || size >= offset_) return false;
      if (options_.written_here) return false;  // The LogFile calls truncated() before it writes.
      offset_ = 0;  // The file was truncated, so it is read from its beginning.
      continue;
    }
    offset_ += n;
    total += static_cast<std::size_t>(n);
    assembler_.feed({buffer.data(), static_cast<std::size_t>(n)}, now, *this);
    if (static_cast<std::size_t>(n) < wanted && unwritten_.empty()) return false;
  }
  return true;
}

bool FollowedFile::is_behind() const {
  return fd_.is_open() && size_of(fd_.get()) > offset_;
}

void FollowedFile::read_to_end() {
  std::vector<char> buffer(64 << 10);  // The loop's buffer may be in use for a pipe.
  do {
    if (!output_.has_room()) break;
    dirty = read(now(), buffer);
    output_.console.flush();
  } while (dirty);
}

// A follower that has read all bytes before these need not read them from the file.
void FollowedFile::written(std::string_view bytes, std::int64_t at) {
  if (dirty || offset_ != at || !output_.has_room()) {
    dirty = true;
    return;
  }
  assembler_.feed(bytes, now(), *this);
  offset_ += static_cast<std::int64_t>(bytes.size());
  output_.console.flush();
}

// The bytes before these may be far more than memory can hold, so they stay in the file.
void FollowedFile::unwritten(std::string_view bytes, std::int64_t at) {
  read_to_end();
  if (!dirty) return assembler_.feed(bytes, now(), *this);
  if (unwritten_.empty() || unwritten_.back().skipped.end() != at)
    unwritten_.push_back({{}, {.offset = at}});
  unwritten_.back().bytes += bytes;
}

void FollowedFile::show_unwritten(Instant now) {
  const auto [bytes, skipped, truncated] = std::move(unwritten_.front());
  unwritten_.pop_front();
  if (truncated > 0) show_lost(truncated, "the file was truncated");
  assembler_.feed(bytes, now, *this);
  if (offset_ >= skipped.offset) offset_ = std::max(offset_, skipped.end());
}

bool FollowedFile::has_unwritten() const {
  return std::any_of(unwritten_.begin(), unwritten_.end(),
                     [](const Unwritten& unwritten) { return !unwritten.bytes.empty(); });
}

void FollowedFile::show_lost(std::int64_t bytes, std::string_view why) {
  assembler_.finish(*this);
  const std::string text = "[muster: " + std::to_string(bytes) + " bytes are not shown here: ";
  append({text + std::string(why) + "]"});
}

void FollowedFile::skip(const LogRange& range) {
  if (!unwritten_.empty() && unwritten_.back().skipped.end() == range.offset)
    unwritten_.back().skipped.length += range.length;
  else if (offset_ == range.offset)
    offset_ += range.length;
}

void FollowedFile::removed(const LogRange& range) {
  const std::int64_t unread = range.end() - std::max(offset_, range.offset);
  if (unread > 0) {
    show_lost(unread, "the disk of the log was full");
    offset_ = std::max(offset_, range.end());
  }
  if (offset_ >= range.end()) offset_ -= range.length;
  const auto moved = [&range](std::int64_t at) {
    return at < range.end() ? std::min(at, range.offset) : at - range.length;
  };
  for (auto& [bytes, skipped, truncated] : unwritten_) {
    const std::int64_t begin = moved(skipped.offset);
    skipped = {.offset = begin, .length = moved(skipped.end()) - begin};
  }
}

// The line waits until the bytes before it are shown. The worker does not wait for that.
void FollowedFile::truncated(std::int64_t before, std::int64_t now) {
  const std::int64_t unread = before - std::max(offset_, now);
  offset_ = std::min(offset_, now);
  for (auto& [bytes, skipped, truncated] : unwritten_) {
    const std::int64_t begin = std::min(skipped.offset, now);
    skipped = {.offset = begin, .length = std::min(skipped.end(), now) - begin};
  }
  if (unread <= 0) return;
  dirty = true;
  if (unwritten_.empty() || !unwritten_.back().bytes.empty() ||
      unwritten_.back().skipped.end() != now)
    unwritten_.push_back({{}, {.offset = now}});
  unwritten_.back().truncated += unread;
}

void FollowedFile::skip_to_end() {
  dirty = false;
  for (const auto& [bytes, skipped, truncated] : std::exchange(unwritten_, {}))
    output_.console.count_lost(bytes.size() + static_cast<std::size_t>(truncated));
  const std::int64_t size = fd_.is_open() ? size_of(fd_.get()) : 0;
  if (size > offset_) output_.console.count_lost(static_cast<std::size_t>(size - offset_));
  offset_ = std::max(offset_, size);
}

void FollowedFile::finish() {
  while (!unwritten_.empty())
    show_unwritten(now());
  assembler_.finish(*this);
}

void FollowedFile::append(const LinePiece& piece) {
  const auto time = options_.prefix.needs_time() ? time_.text() : std::string_view();
  if (!output_.console.is_closed())
    output_.merger.add(stream_, options_.prefix, piece, time, output_.console.buffer());
  if (filtered_) filter(piece, time);
}

void FollowedFile::filter(const LinePiece& piece, std::string_view time) {
  std::string_view line = piece.text;
  if (!piece.begins || !piece.ends) {
    if (piece.begins) filtered_line_.clear();
    const std::size_t room = kMaxFilteredLineBytes - filtered_line_.size();
    filtered_line_ += piece.text.substr(0, room);
    if (!piece.ends) return;
    line = filtered_line_;
  }
  const auto matches = [line](const std::string& filter) {
    return line.find(filter) != std::string_view::npos;
  };
  if (std::any_of(options_.filters.begin(), options_.filters.end(), matches)) {
    std::string& out = filtered_->buffer();
    options_.prefix.append_to(out, time);
    out.append(line).append("\n");
    if (out.size() >= kMaxFilteredBytes) filtered_->flush();
  }
  filtered_line_.clear();
}

WorkerPipe::WorkerPipe(OwnedFd read_end, PipeOptions options, LogOutput* output)
    : fd_(std::move(read_end)), options_(std::move(options)), output_(output) {
  if (options_.tail_of) tail_.emplace(kTailRingBytes);
}

WorkerPipe::State WorkerPipe::read(std::vector<char>& buffer) {
  for (std::size_t total = 0; total < kBytesPerTurn;) {
    const ssize_t n = ::read(fd_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) behind_bytes_ = 0;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::Drained;
    if (n <= 0) return State::Ended;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
    total += bytes.size();
    behind_bytes_ -= std::min(behind_bytes_, bytes.size());
    if (remaining_bytes_) *remaining_bytes_ -= std::min(*remaining_bytes_, bytes.size());
    if (tail_) tail_->append(bytes);
    if (options_.file) options_.file->append(bytes);
    if (output_ != nullptr && !output_->console.is_closed())
      output_->merger.add_verbatim(bytes, output_->console.buffer());
  }
  return State::Open;
}

bool WorkerPipe::has_bytes() const {
  return !has_ended && waiting_bytes(fd_.get()) > 0;
}

void WorkerPipe::stop_waiting() {
  if (!remaining_bytes_) remaining_bytes_ = waiting_bytes(fd_.get());
}

void WorkerPipe::catch_up() {
  behind_bytes_ = waiting_bytes(fd_.get());
}

}  // namespace muster
