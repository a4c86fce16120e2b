#include "launcher/launch_text.h"

#include <cstdio>
#include <string_view>

#include "rendezvous/core/python_text.h"

namespace muster {
namespace {

std::string field(std::string_view name, const std::string& value) {
  constexpr std::size_t kNameWidth = 25;  // torch/distributed/launcher/api.py, 2.13.
  std::string line = "  ";
  line.append(name).append(kNameWidth - name.size(), ' ');
  return line.append(": ").append(value);
}

std::string list(const std::vector<std::string>& words) {
  std::string text = "[";
  for (const std::string& word : words)
    text.append(text.size() == 1 ? "" : ", ").append(python_repr(word));
  return text + "]";
}

std::string configuration(const RendezvousOptions& rendezvous) {
  std::string text = "{";
  for (const auto& [key, value] : rendezvous.conf)
    text.append(text.size() == 1 ? "" : ", ").append(python_repr(key) + ": " + python_repr(value));
  return text + "}";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

std::vector<std::string> launch_text(const Flags& flags, const AgentOptions& options) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  return {
      "Starting elastic_operator with launch configs:",
      field("entrypoint", options.entry_point),
      field("min_nodes", std::to_string(options.min_nodes)),
      field("max_nodes", std::to_string(options.max_nodes)),
      field("nproc_per_node", std::to_string(options.local_world_size)),
      field("run_id", options.run_id),
      field("rdzv_backend", rendezvous.backend_name),
      field("rdzv_endpoint", rendezvous.endpoint),
      field("rdzv_configs", configuration(rendezvous)),
      field("max_restarts", std::to_string(options.max_restarts)),
      field("monitor_interval", number(flags.monitor_interval)),
      field("log_dir", flags.log_dir.empty() ? "None" : flags.log_dir),
      field("metrics_cfg", "{}"),
      field("event_log_handler", flags.event_log_handler),
      field("numa_options", flags.numa_binding.value_or("None")),
      field("signals_to_handle", options.signals_to_handle_text),
      field("duplicate_stdout_filters", list(options.log.duplicate_stdout_filters)),
      field("duplicate_stderr_filters", list(options.log.duplicate_stderr_filters)),
  };
}

}  // namespace muster
