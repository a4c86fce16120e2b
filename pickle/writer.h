// Writes a pickle byte for byte like CPython's pickler: protocol 4, frames, memo, batches.
#pragma once

#include <string>

#include "pickle/result.h"
#include "pickle/value.h"

namespace muster::pickle {

/// How deep lists and dicts may be nested.
inline constexpr int kMaxPickleDepth = 32;

/// The pickle of one value and of all values that it refers to; `root` is in the graph. Each value
/// of the graph is one object to a reader of the pickle. Fails only if values are nested too
/// deeply, or if one cannot be written (Persistent, Moved).
PickleResult<std::string> write_pickle(const Graph& graph, Ref root,
                                       int max_depth = kMaxPickleDepth);

}  // namespace muster::pickle
