// Writes a whole text to a descriptor.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include <boost/system/error_code.hpp>

#include "base/from_errno.h"

namespace muster {

/// Writes all of `text`, with as many calls as the kernel needs. Error: the errno of write(); a
/// part of the text may then have been written.
inline boost::system::error_code write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return from_errno(n < 0 ? errno : EIO);  // A second call could return 0 as well.
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace muster
