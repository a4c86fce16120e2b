#include "agent/logs/log_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include <spdlog/spdlog.h>

#include "agent/logs/log_space.h"

namespace muster {

RecordedPipe::RecordedPipe(LogFd read_end, std::string path)
    : path_(std::move(path)),
      fd_(std::move(read_end)),
      file_(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)) {}

bool RecordedPipe::read(std::size_t limit_bytes, std::vector<char>& buffer,
                        const std::function<bool()>& make_room) {
  for (std::size_t total = 0; total < limit_bytes;) {
    const ssize_t n = ::read(fd_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) return true;
    total += static_cast<std::size_t>(n);
    append({buffer.data(), static_cast<std::size_t>(n)}, make_room);
  }
  return false;
}

void RecordedPipe::append(std::string_view bytes, const std::function<bool()>& make_room) {
  if (dropped_ > 0) {
    const std::string text = "\n[muster: " + std::to_string(dropped_) +
                             " bytes are missing here: they could not be written]\n";
    std::string_view rest = text;
    if (write_all(rest, make_room)) dropped_ = 0;
  }
  if (dropped_ == 0) write_all(bytes, make_room);
  dropped_ += static_cast<std::int64_t>(bytes.size());
}

// Takes away from `bytes` what was written.
bool RecordedPipe::write_all(std::string_view& bytes, const std::function<bool()>& make_room) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const int error = errno;
    if ((error == EFBIG || is_disk_full(error)) && make_room()) continue;
    if (!std::exchange(warned_, true))
      spdlog::warn("some of {} is dropped: {}: {}", path_, describe_disk(file_.get()),
                   std::generic_category().message(error));
    return false;
  }
  return true;
}

}  // namespace muster
