// Reading and writing the small files in which errors travel.

#pragma once

#include <optional>
#include <string>

#include "rendezvous/core/result.h"

namespace muster {

/// The beginning of the file, one byte more than kMaxErrorFileBytes at most, so that too long a
/// file is seen to be one; nothing if there is no such file or it cannot be read.
std::optional<std::string> read_error_file_at(const std::string& path);

/// Writes the whole file. A regular one, also behind a symbolic link, is replaced in one step: a
/// reader sees the old text or the new one, never half of it. What cannot be replaced (a device, a
/// FIFO, a mount point, a file in a directory that is not ours) is written to where it stands;
/// one that nobody reads is an error, and a slow reader is waited for two seconds at most.
/// /dev/stdout, /dev/fd/3 and the like are the descriptors that we were started with.
boost::system::error_code write_whole_file(const std::string& path, const std::string& text);

}  // namespace muster
