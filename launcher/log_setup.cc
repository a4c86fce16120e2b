#include "launcher/log_setup.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "agent/io/own_lines.h"

namespace muster {
namespace {

std::string level_name(const Environment& environment) {
  const auto found = environment.find("LOGLEVEL");
  std::string name = found == environment.end() ? "" : found->second;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

spdlog::level::level_enum level_of(const Environment& environment) {
  const std::string name = level_name(environment);
  if (name == "DEBUG" || name == "NOTSET") return spdlog::level::debug;
  if (name == "INFO") return spdlog::level::info;
  if (name == "ERROR") return spdlog::level::err;
  if (name == "CRITICAL" || name == "FATAL") return spdlog::level::critical;
  return spdlog::level::warn;
}

}  // namespace

void set_up_logging(const Environment& environment) {
  auto logger =
      std::make_shared<spdlog::logger>("muster", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(kOwnLinePattern);
  logger->set_level(level_of(environment));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

bool shows_events(const Environment& environment) {
  const std::string name = level_name(environment);
  return name != "WARNING" && name != "WARN" && name != "ERROR" && name != "CRITICAL" &&
         name != "FATAL";
}

}  // namespace muster
