// Whether Python's unpickler stops at a text without having called anything.
//
// Pure, with a small and fixed limit of work, and independent of the reader, which refuses much
// that Python reads.
#pragma once

#include <string_view>

namespace muster::pickle {

enum class DryRun {
  /// pickle.loads() raises an exception inside of these bytes, whatever follows them.
  Fails,
  /// pickle.loads() raises an exception because the pickle ends too early. With further bytes, it
  /// may be read.
  EndsEarly,
  /// Python may read these bytes, or may import, call or build something before it fails.
  MayRead,
};

/// Follows CPython's C unpickler (Modules/_pickle.c, 3.8 to 3.14), as pickle.loads() uses it: with
/// no persistent ids. The answer is MayRead as soon as a value could be something else than plain
/// data, and for everything that could take Python much time or memory.
DryRun dry_run(std::string_view bytes);

}  // namespace muster::pickle
