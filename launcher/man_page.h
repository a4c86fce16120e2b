// The manual page, from the option table. docs/muster.1 is a copy; a test says when it is old.
#pragma once

#include <string>

namespace muster {

/// In man(7)'s language.
std::string man_page();

}  // namespace muster
