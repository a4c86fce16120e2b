#include "launcher/flags.h"

namespace muster {

std::string Flags::name_of(const OptionField& field) const {
  const Given& how = given[option_index(field)];
  const Option& what = option(field);
  if (how.source == Source::Cluster)
    return std::string(what.long_name()) + " (--cluster: " + how.spelled + ")";
  if (how.source == Source::Variable) return std::string(what.environment);
  // An abbreviation, or a cluster such as "-mr3", is reported under the option's long name.
  if (how.source == Source::CommandLine &&
      (how.spelled == what.names[0] || how.spelled == what.names[1]))
    return how.spelled;
  return std::string(what.long_name());
}

ProgramName program_name(std::string_view argv0) {
  const auto slash = argv0.rfind('/');
  if (slash != std::string_view::npos) argv0.remove_prefix(slash + 1);
  if (argv0.empty()) argv0 = "muster";
  return {.shown = std::string(argv0), .launch_module = argv0 == "muster-launch"};
}

}  // namespace muster
