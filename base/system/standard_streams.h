// Descriptors 0 to 2 of a program that was started without some of them.
#pragma once

#include <fcntl.h>

namespace muster {

/// Opens descriptors 0 to 2 as /dev/null if they are missing. Otherwise another file could get such
/// a number, and text for stderr would be written into that file.
inline void open_missing_standard_streams() {
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

}  // namespace muster
