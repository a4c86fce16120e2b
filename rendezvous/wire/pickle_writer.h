// Writes a pickle byte for byte as CPython's pickler does: protocol 4, frames, memo, batches.
#pragma once

#include <string>

#include "rendezvous/wire/pickle_reader.h"
#include "rendezvous/wire/pickle_value.h"

namespace muster::pickle {

/// How deep lists and dicts may be nested.
inline constexpr int kMaxPickleDepth = 32;

/// The pickle of one value and of all that it refers to. What is one value in the graph is one
/// object to whoever reads it. Fails only when nested too deeply.
PickleResult<std::string> write_pickle(const Graph& graph, Ref root,
                                       int max_depth = kMaxPickleDepth);

}  // namespace muster::pickle
