// Python's datetime inside a pickle <-> WallTime.
#pragma once

#include <array>
#include <string>

#include <boost/system/result.hpp>

#include "pickle/value.h"
#include "rendezvous/core/rendezvous_state.h"

namespace muster {

/// datetime's ten bytes: year, month, day, hour, minute, second, microsecond; big-endian. A time
/// outside of the years 1 to 9999 becomes the nearest one that Python knows.
std::array<char, 10> python_time_bytes(WallTime time);

/// Why Python would not carry out a call of datetime.datetime, timezone or timedelta as torch
/// makes it, or why muster does not know what it means; empty: python_time() can read it.
std::string check_time_call(const pickle::Graph& graph, pickle::Ref callee, pickle::Ref arguments);

/// The instant of a call of datetime.datetime in the graph, whatever its zone; or why it is none.
boost::system::result<WallTime, std::string> python_time(const pickle::Graph& graph,
                                                         pickle::Ref ref);

}  // namespace muster
