#include "launcher/numa_setup.h"

#include <utility>

namespace muster {
namespace {

constexpr const char* kDevices = "CUDA_VISIBLE_DEVICES";

NumaBinding binding_of(const std::string& mode) {
  if (mode == "socket") return NumaBinding::Socket;
  if (mode == "exclusive") return NumaBinding::Exclusive;
  if (mode == "core-complex") return NumaBinding::CoreComplex;
  return NumaBinding::Node;  // The parser lets no other pass.
}

/// As the workers will have it; null: not set.
const std::string* visible_devices(const Environment& environment, const AgentOptions& agent) {
  if (const auto given = agent.worker_environment.find(kDevices);
      given != agent.worker_environment.end())
    return &given->second;
  const auto inherited = environment.find(kDevices);
  return inherited == environment.end() ? nullptr : &inherited->second;
}

}  // namespace

Checked<void> plan_numa(const Flags& flags, const Environment& environment, const NodeFacts& facts,
                        LaunchPlan& plan) {
  if (!flags.numa_binding) return {};
  const std::string name = flags.name_of(OptionId::NumaBinding);
  const int workers = plan.agent.local_world_size;
  Checked<NumaFacts> machine = facts.numa(visible_devices(environment, plan.agent));
  if (!machine) return FlagError{name + ": " + machine.error().message};
  std::vector<int> nodes = machine->node_of_gpu;
  if (nodes.empty()) {
    plan.notices.push_back(name +
                           ": no GPU is visible, so the workers are shared out evenly over "
                           "the NUMA nodes, in the order of their local ranks");
    nodes = spread_over_nodes(machine->topology, workers);
  }
  auto cpus = plan_cpus(binding_of(*flags.numa_binding), machine->topology, nodes, workers);
  if (!cpus) return FlagError{name + " " + *flags.numa_binding + ": " + cpus.error().text};
  plan.agent.cpus = *std::move(cpus);
  return {};
}

}  // namespace muster
