// A loop that outlives its handlers' exceptions.
#pragma once

#include <boost/asio/io_context.hpp>

namespace muster {

/// Runs `loop` until it is stopped or has nothing left to do. An exception that leaves a handler is
/// logged as a fault of this program, and the loop goes on with the next handler. `name` is for the
/// log.
void run_guarded(boost::asio::io_context& loop, const char* name);

}  // namespace muster
