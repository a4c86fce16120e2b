// Reads a pickle without Python: a stack machine over inert values.
//
// Knows the opcodes that a rendezvous state can consist of (protocols 2 to 5) and a closed list of
// class names; refuses everything else. Executes nothing, recurses nowhere, and is bounded in every
// direction by PickleLimits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/wire/pickle_value.h"

namespace muster::pickle {

struct PickleLimits {
  std::size_t bytes = std::size_t{8} << 20;  // About 60,000 nodes.
  std::size_t values = 1'000'000;            // Of a graph.
  std::size_t stack = 100'000;               // A batch of 1000 items needs 2,000.
};

/// Why it was refused, and at which byte of the pickle.
struct PickleError {
  std::size_t offset = 0;
  std::string reason;
};

template <typename T>
using PickleResult = boost::system::result<T, PickleError>;

/// Adds the values of `bytes`, which must outlive the graph, and returns the one left at STOP.
PickleResult<Ref> read_pickle(std::string_view bytes, Graph& graph,
                              const PickleLimits& limits = {});

}  // namespace muster::pickle
