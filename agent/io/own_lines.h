// muster's own lines on stderr, at their place among those of the workers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <spdlog/common.h>

#include "agent/logs/log_pump.h"

namespace muster {

/// What a worker wrote last is on its way through the log thread when its end is known already: a
/// line about that end waits for it, and all later lines for that line.
class OwnLines {
 public:
  explicit OwnLines(boost::asio::io_context& io) : io_(io) {}
  void start(LogPump& pump) { pump_ = &pump; }

  void say(spdlog::level::level_enum level, std::string text);
  /// The lines from here on stand below all that the workers have written so far; they wait for it
  /// for a moment only.
  void below_output();
  /// Says what waits: the log thread has shown all, or there is no time.
  void flush();

 private:
  boost::asio::io_context& io_;
  LogPump* pump_ = nullptr;
  std::vector<std::pair<spdlog::level::level_enum, std::string>> waiting_lines_;
  bool waiting_ = false;
};

}  // namespace muster
