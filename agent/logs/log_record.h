// A worker's stream that muster writes to the log file, so that a full disk is muster's matter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/logs/log_space.h"

namespace muster {

/// The reading end of a worker's pipe, and the file that what comes out is appended to. What does
/// not fit is dropped, and a line in the file says how much; the worker never notices.
class RecordedPipe {
 public:
  RecordedPipe(LogFd read_end, std::string path);

  /// Reads and writes up to `limit_bytes`. True when nobody holds the other end any more.
  /// `make_room`: called when the disk is full; true if it is worth trying again.
  bool read(std::size_t limit_bytes, std::vector<char>& buffer,
            const std::function<bool()>& make_room);
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

  bool has_ended = false;
  bool is_forgotten = false;   // Its attempt is over; a grandchild still holds the pipe.
  std::uint32_t interest = 0;  // What epoll has been told.

 private:
  void append(std::string_view bytes, const std::function<bool()>& make_room);
  bool write_all(std::string_view& bytes, const std::function<bool()>& make_room);

  std::string path_;
  LogFd fd_;
  LogFd file_;
  std::int64_t dropped_ = 0;  // Since the last byte that was written.
  bool warned_ = false;
};

}  // namespace muster
