#include "rendezvous/net/guarded_loop.h"

#include <exception>

#include <spdlog/spdlog.h>

#include "rendezvous/net/clock.h"
#include "rendezvous/net/log_limiter.h"

namespace muster {

void run_guarded(boost::asio::io_context& loop, const char* name) {
  LogLimiter log;
  for (;;) {
    try {
      loop.run();
      return;
    } catch (const std::exception& error) {
      if (const auto left_out = log.admit(now(), "handler failed", {}))
        spdlog::error("handler_failed loop={} error=\"{}\" left_out={}", name, error.what(),
                      *left_out);
    }
  }
}

}  // namespace muster
