#include "launcher/log_setup.h"

#include <memory>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/python_text.h"
#include "base/system/log_line.h"

namespace muster {
namespace {

/// LOGLEVEL in lower case; empty: not set.
std::string level_name(const Environment& environment) {
  const auto found = environment.find("LOGLEVEL");
  return found == environment.end() ? std::string() : lower(found->second);
}

spdlog::level::level_enum level_of(const Environment& environment) {
  const std::string name = level_name(environment);
  if (name == "debug" || name == "notset") return spdlog::level::debug;
  if (name == "info") return spdlog::level::info;
  if (name == "error") return spdlog::level::err;
  if (name == "critical" || name == "fatal") return spdlog::level::critical;
  return spdlog::level::warn;
}

}  // namespace

void set_up_logging(const Environment& environment) {
  auto logger =
      std::make_shared<spdlog::logger>("muster", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(kLogLinePattern);
  logger->set_level(level_of(environment));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

bool shows_events(const Environment& environment) {
  const std::string name = level_name(environment);
  return name != "warning" && name != "warn" && name != "error" && name != "critical" &&
         name != "fatal";
}

}  // namespace muster
