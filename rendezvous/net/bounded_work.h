// Work that may wait for a server or for storage: done off the loop, and not waited for longer than
// asked for.
//
// Each piece of work has a thread of its own for as long as it takes: one that hangs holds up no
// other, nor the end of the program.
#pragma once

#include <functional>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/core/time.h"

namespace muster {

/// Runs `work` on a thread of its own; no error: it has returned. With errc::timed_out it takes
/// longer than `limit`: its thread is left behind and ends on its own, so `work` owns, or shares,
/// all that it uses. With another error there is no thread or no descriptor for it
/// (errc::resource_unavailable_try_again, or errno), and it does not run.
boost::asio::awaitable<boost::system::error_code> run_in_time(std::function<void()> work,
                                                              Duration limit);

}  // namespace muster
