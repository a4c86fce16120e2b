// Runs work that may block on a server or on storage outside the loop, with a time limit.
//
// Each piece of work has its own thread. Work that hangs delays neither other work nor the end of
// the program.
#pragma once

#include <functional>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "rendezvous/core/time.h"

namespace muster {

/// Runs `work` on its own thread, and returns no error when it has returned. Returns
/// errc::timed_out if it takes longer than `limit`: its thread is left behind and ends later, so
/// `work` must own or share everything that it uses. Returns another error
/// (errc::resource_unavailable_try_again, or errno) if there is no thread or no descriptor for it:
/// then `work` does not run.
boost::asio::awaitable<boost::system::error_code> run_in_time(std::function<void()> work,
                                                              Duration limit);

}  // namespace muster
