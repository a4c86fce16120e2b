// What a program says about itself when it is asked for its version.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// "muster 0.1.0" for the program "muster", and then lines with the commit, the target, the
/// compiler and the libraries inside. Ends with a line feed.
std::string build_text(std::string_view program);

}  // namespace muster
