// Reading and writing the small files in which errors travel.

#pragma once

#include <optional>
#include <string>

#include "rendezvous/core/result.h"

namespace muster {

/// The beginning of the file, one byte more than kMaxErrorFileBytes at most, so that too long a
/// file is seen to be one; nothing if there is no such file or it cannot be read.
std::optional<std::string> read_error_file_at(const std::string& path);

/// Replaces the file in one step: a reader sees the old text or the new one, never half of it.
boost::system::error_code write_file_atomically(const std::string& path, const std::string& text);

}  // namespace muster
