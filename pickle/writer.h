// Writes a pickle byte for byte as CPython's pickler does: protocol 4, frames, memo, batches.
#pragma once

#include <string>

#include "pickle/result.h"
#include "pickle/value.h"

namespace muster::pickle {

/// How deep lists and dicts may be nested.
inline constexpr int kMaxPickleDepth = 32;

/// The pickle of one value and of all that it refers to; `root` is in the graph. What is one value
/// in the graph is one object to whoever reads it. Fails only when values are nested too deeply, or
/// one cannot be written (Persistent, Moved).
PickleResult<std::string> write_pickle(const Graph& graph, Ref root,
                                       int max_depth = kMaxPickleDepth);

}  // namespace muster::pickle
