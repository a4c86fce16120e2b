// Runs work that may block on a server or on storage outside the loop, with a time limit.
//
// Each piece of work has its own thread. Work that hangs delays neither other work nor the end of
// the program.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "base/time.h"

namespace muster {

/// Runs `work` on its own thread, and returns no error when it has returned. Returns
/// errc::timed_out if it takes longer than `limit`: its thread is left behind and ends later, so
/// `work` must own or share everything that it uses. Returns another error
/// (errc::resource_unavailable_try_again, or errno) if there is no thread or no descriptor for it:
/// then `work` does not run.
boost::asio::awaitable<boost::system::error_code> run_in_time(std::function<void()> work,
                                                              Duration limit);

/// Runs `read`, which reads files again that may have been renewed, in 0.5 s. Does nothing while an
/// earlier `read` with the same `reading` still runs: storage that hangs holds one thread, not one
/// for each try. Returns whether `read` has returned: only then its results may be used.
boost::asio::awaitable<bool> reread_in_time(std::shared_ptr<std::atomic<bool>> reading,
                                            std::function<void()> read);

}  // namespace muster
