// Text from outside, made fit for one line of a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/core/limits.h"

namespace muster {

/// `text` between quotes in a line of a log: control characters, line separators, characters that
/// turn the direction of writing, and bytes that are not UTF-8 become \xHH; a quote and a
/// backslash get a backslash in front. A text of more than `most` bytes is cut and ends in "...".
std::string printable_text(std::string_view text, std::size_t most = kMaxLoggedTextBytes);

}  // namespace muster
