#include "agent/io/error_file_io.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "agent/core/error_file.h"

namespace muster {
namespace {

boost::system::error_code last_error() {
  return {errno, boost::system::system_category()};
}

bool write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

std::optional<std::string> read_error_file_at(const std::string& path) {
  if (path.empty()) return std::nullopt;
  // A worker may have left anything there, a FIFO too: never wait for it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  struct stat info {};
  std::optional<std::string> text;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    text.emplace();
    std::array<char, 16384> chunk;
    while (text->size() <= kMaxErrorFileBytes) {
      const ssize_t n = ::read(fd, chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      text->append(chunk.data(), static_cast<std::size_t>(n));
    }
  }
  ::close(fd);
  return text;
}

boost::system::error_code write_file_atomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".muster-new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return last_error();
  const bool written = write_all(fd, text) && ::fsync(fd) == 0;
  boost::system::error_code error = written ? boost::system::error_code{} : last_error();
  ::close(fd);
  if (!error && ::rename(temporary.c_str(), path.c_str()) != 0) error = last_error();
  if (error) ::unlink(temporary.c_str());
  return error;
}

}  // namespace muster
