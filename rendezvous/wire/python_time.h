// Python's datetime inside a pickle <-> WallTime.
#pragma once

#include <array>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/core/rendezvous_state.h"
#include "rendezvous/wire/pickle_value.h"

namespace muster {

/// datetime's ten bytes: year, month, day, hour, minute, second, microsecond; big-endian.
std::array<char, 10> python_time_bytes(WallTime time);

/// The instant of a call of datetime.datetime in the graph, whatever its zone; or why it is none.
boost::system::result<WallTime, std::string> python_time(const pickle::Graph& graph,
                                                         pickle::Ref ref);

}  // namespace muster
