// What torchrun has and muster does not carry out yet. A row goes when its feature comes.
#include "launcher/launch_plan.h"
#include "launcher/rendezvous_flags.h"

namespace muster {
namespace {

struct Row {
  OptionId option;
  bool (*is_asked_for)(const Flags&);
  const char* what;
};

/// A count that is wrong is not this file's matter: the plan says so.
int largest_node_count(const Flags& flags) {
  const auto nodes = parse_nnodes(flags.nnodes, "--nnodes");
  return nodes ? nodes->max : 1;
}

constexpr Row kRows[] = {
    {OptionId::RunPath, [](const Flags& f) { return f.run_path; },
     "running scripts inside a forked or spawned Python; leave it out and the script is run as "
     "python -u SCRIPT"},
    {OptionId::NumaBinding, [](const Flags& f) { return f.numa_binding.has_value(); },
     "binding workers to CPUs near their GPUs"},
    {OptionId::EventLogHandler, [](const Flags& f) { return f.event_log_handler != "null"; },
     "recording events other than with null"},
    {OptionId::LogsSpecs, [](const Flags& f) { return f.logs_specs.has_value(); },
     "Python entry points for logs"},
    {OptionId::RdzvBackend,
     [](const Flags& f) {
       return !f.standalone && (f.rdzv_backend == "etcd" || f.rdzv_backend == "etcd-v2");
     },
     "rendezvous through etcd; give c10d or static"},
    {OptionId::Nnodes, [](const Flags& f) { return !f.standalone && largest_node_count(f) > 1; },
     "jobs of more than one node"},
};

}  // namespace

std::optional<std::string> unsupported(const Flags& flags) {
  for (const Row& row : kRows)
    if (row.is_asked_for(flags))
      return flags.name_of(row.option) + ": muster " MUSTER_VERSION " does not support " + row.what;
  return std::nullopt;
}

}  // namespace muster
