// Reads the workers' error files, and writes muster's own error file and failure report.

#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace muster {

/// The beginning of the file: at most kMaxErrorFileBytes, and one byte more to show that the file
/// is too long. Nothing if there is no regular file at `path`, or it cannot be read.
std::optional<std::string> read_error_file_at(const std::string& path);

/// Writes the whole file. A regular file, also behind a symbolic link, is replaced in one step: a
/// reader sees the old text or the new one, never half of it. A file that cannot be replaced (a
/// device, a FIFO, a mount point, a file in a directory that is not writable, another user's file)
/// is written in place. What another user has put at `path` in a folder like /tmp is not used: the
/// error is then EACCES.
/// A FIFO without a reader is an error, and a slow reader is waited for at most two seconds.
/// /dev/stdout, /dev/fd/3 and the like mean the descriptors that muster was started with.
boost::system::error_code write_whole_file(const std::string& path, const std::string& text);

}  // namespace muster
