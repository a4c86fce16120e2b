// Python's datetime inside a pickle <-> WallTime.
#pragma once

#include <array>
#include <string>

#include <boost/system/result.hpp>

#include "pickle/value.h"
#include "rendezvous/torchrun/rendezvous_state.h"

namespace muster {

/// The ten bytes of a datetime: year, month, day, hour, minute, second, microsecond; big-endian. A
/// time outside of the years 1 to 9999 becomes the nearest time that Python knows.
std::array<char, 10> python_time_bytes(WallTime time);

/// Checks a call of datetime.datetime, timezone or timedelta, as torch writes it. Returns why
/// Python would refuse the call, or why muster does not know its meaning. Empty: python_time() can
/// read it.
std::string check_time_call(const pickle::Graph& graph, pickle::Ref callee, pickle::Ref arguments);

/// The instant of a call of datetime.datetime in the graph, in any time zone; or an error text.
boost::system::result<WallTime, std::string> python_time(const pickle::Graph& graph,
                                                         pickle::Ref ref);

}  // namespace muster
