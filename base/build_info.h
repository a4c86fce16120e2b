// The text that a program prints for --version.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// For the program "muster": the line "muster 0.1.0", and then lines with the commit, the target,
/// the compiler and the libraries that are built in. Ends with a line feed.
std::string build_text(std::string_view program);

}  // namespace muster
