#include "base/net/guarded_loop.h"

#include <exception>

#include <spdlog/spdlog.h>

#include "base/system/clock.h"
#include "base/system/log_limiter.h"

namespace muster {
namespace {

/// Returns whether there was memory for the line. The loop goes on in any case.
bool log_failure(LogLimiter& log, const char* loop, const std::exception& error) noexcept {
  try {
    if (const auto left_out = log.admit(now(), "handler failed", {}))
      spdlog::error("handler_failed loop={} error=\"{}\" left_out={}", loop, error.what(),
                    *left_out);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void run_guarded(boost::asio::io_context& loop, const char* name) {
  LogLimiter log;
  for (;;) {
    try {
      loop.run();
      return;
    } catch (const std::exception& error) {
      log_failure(log, name, error);
    }
  }
}

}  // namespace muster
