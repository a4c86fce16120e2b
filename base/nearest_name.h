// "Did you mean": the known name that is most similar to a word with a typing error.
//
// Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster {

/// The most similar name; empty if none is similar enough. A long word is compared with none.
/// Hyphens in front do not count, and an underscore counts as a hyphen.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> names);

/// `" (did you mean NAME?)"`; empty if no name is similar enough.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> names);

}  // namespace muster
