#include "launcher/logs_specs.h"

#include <utility>

namespace muster {
namespace {

// Through -c, as of --run-path.
constexpr const char* kLogsSpecsProgram =
#include "launcher/logs_specs_program.inc"
    ;

}  // namespace

bool has_logs_plugin(const Flags& flags) {
  return flags.logs_specs.has_value() && *flags.logs_specs != "default";
}

void plan_logs_specs(const Flags& flags, std::string python, LogOptions& log) {
  log.specs = LogsSpecsOptions{.name = flags.logs_specs.value_or(""),
                               .command = {std::move(python), "-u", "-c", kLogsSpecsProgram},
                               .log_dir = flags.log_dir};
}

}  // namespace muster
