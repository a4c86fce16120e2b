// An event loop that continues after an exception of a handler.
#pragma once

#include <boost/asio/io_context.hpp>

namespace muster {

/// Runs `loop` until it is stopped or has nothing left to do. An exception that leaves a handler is
/// logged as an error, and the loop continues with the next handler. `name` is for the log.
void run_guarded(boost::asio::io_context& loop, const char* name);

}  // namespace muster
