#include "agent/io/own_lines.h"

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

namespace muster {
namespace {

// A console that is stuck: our lines would be, too, but what they are about goes on.
constexpr Duration kWait = std::chrono::milliseconds(250);

}  // namespace

void OwnLines::say(spdlog::level::level_enum level, std::string text) {
  if (!spdlog::should_log(level)) return;
  if (waiting_)
    waiting_lines_.emplace_back(level, std::move(text));
  else
    spdlog::log(level, "{}", text);
}

void OwnLines::below_output() {
  if (pump_ == nullptr || std::exchange(waiting_, true)) return;
  pump_->catch_up(kWait, [this] { boost::asio::post(io_, [this] { flush(); }); });
}

void OwnLines::flush() {
  waiting_ = false;
  for (const auto& [level, text] : std::exchange(waiting_lines_, {}))
    spdlog::log(level, "{}", text);
}

}  // namespace muster
