// Names in directories that everybody may write to. They tell who made them, so that a later run
// can remove what a killed one has left.

#pragma once

#include <cstddef>
#include <string>

namespace muster {

/// `count` characters of a-z0-9 from the kernel's generator.
std::string random_name(std::size_t count);

/// A new name that tells the calling process as the owner (agent/core/run_owner.h).
std::string owned_name();

/// Whether something has been written to a file in `dir`.
bool holds_a_file(const std::string& dir);

/// Removes what has such a name in `folder` and is this user's, if its owner is gone: pipes, and
/// directories, of those only such as hold no file. Looks at a bounded number of names.
void remove_what_dead_owners_left(const std::string& folder);

}  // namespace muster
