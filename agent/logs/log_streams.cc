#include "agent/logs/log_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <spdlog/spdlog.h>

#include "rendezvous/core/limit_advice.h"

namespace muster {
namespace {

constexpr mode_t kLogMode = 0666;                       // Less the umask, as for the worker's own.
constexpr std::size_t kMaxFilteredLineBytes = 1 << 20;  // A longer one is matched by its beginning.

LogFd open_log(const std::string& path, int flags) {
  LogFd fd(::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, kLogMode));
  if (!fd.is_open())
    spdlog::warn("log_not_opened path=\"{}\" reason=\"{}{}\"", path,
                 std::generic_category().message(errno), limit_advice(errno));
  return fd;
}

std::int64_t size_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_size : 0;
}

}  // namespace

LogFilterFile::LogFilterFile(std::string path)
    : path_(std::move(path)), fd_(open_log(path_, O_WRONLY | O_APPEND)) {}

void LogFilterFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty() && fd_.is_open()) {
    const ssize_t n = ::write(fd_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      spdlog::warn("log_not_written path=\"{}\" reason=\"{}\"", path_,
                   std::generic_category().message(errno));
      fd_.reset();
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  buffer_.clear();
}

FollowedFile::FollowedFile(Options options, LogOutput& output)
    : options_(std::move(options)),
      output_(output),
      fd_(open_log(options_.path, O_RDONLY)),
      assembler_(options_.limits) {}

bool FollowedFile::read(std::size_t limit_bytes, Instant now, std::string_view time,
                        std::vector<char>& buffer) {
  if (!fd_.is_open()) return false;
  time_ = time;
  for (std::size_t total = 0; total < limit_bytes;) {
    const ssize_t n = ::pread(fd_.get(), buffer.data(), buffer.size(), offset_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0 && size_of(fd_.get()) < offset_) {  // Truncated: it begins anew.
        offset_ = 0;
        continue;
      }
      return false;
    }
    offset_ += n;
    total += static_cast<std::size_t>(n);
    assembler_.feed({buffer.data(), static_cast<std::size_t>(n)}, now, *this);
    if (static_cast<std::size_t>(n) < buffer.size()) return false;
  }
  return true;
}

void FollowedFile::on_time(Instant now, std::string_view time) {
  time_ = time;
  assembler_.on_time(now, *this);
}

void FollowedFile::removed(const LogRemoval& removal, std::string_view time) {
  const std::int64_t end = removal.range.end();
  const std::int64_t unread = end - std::max(offset_, removal.range.offset);
  if (unread > 0) {
    time_ = time;
    assembler_.finish(*this);
    const std::string text = "[muster: " + std::to_string(unread) +
                             " bytes are not shown here: the disk of the log was full]";
    take({text});
    offset_ = std::max(offset_, end);
  }
  if (removal.collapsed && offset_ >= end) offset_ -= removal.range.length;
}

void FollowedFile::finish(std::string_view time) {
  time_ = time;
  assembler_.finish(*this);
}

void FollowedFile::take(const LinePiece& piece) {
  if (!output_.console.is_closed())
    output_.merger.add(options_.id, options_.prefix, piece, time_, output_.console.buffer());
  if (options_.filtered) filter(piece);
}

void FollowedFile::filter(const LinePiece& piece) {
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
    std::string& out = options_.filtered->buffer();
    options_.prefix.append_to(out, time_);
    out.append(line).append("\n");
  }
  filtered_line_.clear();
}

TappedPipe::State TappedPipe::read(std::size_t limit_bytes, std::vector<char>& buffer) {
  for (std::size_t total = 0; total < limit_bytes;) {
    const ssize_t n = ::read(fd_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) is_behind = false;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::Drained;
    if (n <= 0) return State::Ended;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(n));
    total += bytes.size();
    tail_.append(bytes);
    if (output_ != nullptr && !output_->console.is_closed())
      output_->merger.add_verbatim(bytes, output_->console.buffer());
  }
  return State::Open;
}

std::string last_lines_of_file(const std::string& path, TailLimits limits) {
  const LogFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return "";
  const auto wanted = static_cast<std::int64_t>(limits.bytes) + 1;
  const std::int64_t begin = std::max<std::int64_t>(0, size_of(fd.get()) - wanted);
  std::string text(static_cast<std::size_t>(wanted), '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), begin);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return std::string(last_lines(text, limits, begin == 0));
}

}  // namespace muster
