// Writes to stdout for programs that end with an error if their output is lost.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string_view>

#include <boost/system/error_code.hpp>

#include "base/from_errno.h"

namespace muster {

/// Writes `text` and all that was written before it. The error is that of write(2): EPIPE if the
/// reader is gone. The C library reports an error once only, and drops the text.
inline boost::system::error_code write_to_stdout(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  const int error = errno;
  if (!written) return from_errno(error);
  return std::fflush(stdout) == 0 ? boost::system::error_code() : from_errno(errno);
}

/// Writes `text`, and complains on stderr in the name of `program` if it is lost, unless the reader
/// is gone. Returns the exit status for that: 0 or 1.
inline int print_all(const char* program, std::string_view text) {
  const auto error = write_to_stdout(text);
  if (!error) return 0;
  if (error != boost::system::errc::broken_pipe)
    std::fprintf(stderr, "%s: the output cannot be written: %s\n", program,
                 error.message().c_str());
  return 1;
}

}  // namespace muster
