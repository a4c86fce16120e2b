#include "launcher/worker_count.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "agent/core/worker_env.h"
#include "base/python_text.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxWorkers = 65536;  // More processes than a Linux node allows by default.

FlagError no_device_error(const WorkerCountRequest& request, std::string_view what) {
  std::string text = request.flag + " is " + python_repr(request.text) + ", but there is no " +
                     std::string(what) + " that workers could use on this node";
  if (what == "GPU" && request.cuda_visible_devices != nullptr)
    text += " (CUDA_VISIBLE_DEVICES is " + python_repr(*request.cuda_visible_devices) + ")";
  return FlagError{text + "; give a number, cpu or auto"};
}

/// For "gpu:1,3,5": one worker on each of these GPUs. The numbers are those that programs in this
/// environment see.
Checked<WorkerCount> chosen_gpus(const WorkerCountRequest& request) {
  const std::string where = request.flag + " is " + python_repr(request.text);
  const int visible = request.facts.gpus();
  std::vector<std::string_view> entries;
  if (request.cuda_visible_devices != nullptr) entries = split(*request.cuda_visible_devices, ',');
  std::set<std::int64_t> seen;
  WorkerCount count;
  std::string devices;
  for (const std::string_view part : split(request.text.substr(4), ',')) {
    const auto index = parse_python_int(part);
    if (!index || *index < 0)
      return FlagError{where + ": give the GPUs' numbers with commas between, as in gpu:0,2"};
    if (*index >= visible)
      return FlagError{where + ", but this node shows " +
                       (visible == 0   ? std::string("no GPU: give a number, cpu or auto")
                        : visible == 1 ? std::string("one GPU, number 0")
                                       : "GPUs 0 to " + std::to_string(visible - 1) + " only")};
    if (!seen.insert(*index).second)
      return FlagError{where + ": GPU " + std::to_string(*index) + " is named twice"};
    if (!devices.empty()) devices += ',';
    const auto at = static_cast<std::size_t>(*index);
    devices += at < entries.size() ? std::string(strip(entries[at])) : std::to_string(*index);
    ++count.workers;
  }
  count.cuda_visible_devices = devices;
  return count;
}

NumaBinding binding_of(const std::string& mode) {
  if (mode == "socket") return NumaBinding::Socket;
  if (mode == "exclusive") return NumaBinding::Exclusive;
  if (mode == "core-complex") return NumaBinding::CoreComplex;
  return NumaBinding::Node;  // "node": the parser accepts no other mode.
}

/// The nodes of the parts of devices, in their order: Level Zero shows each tile of an XPU as a
/// device of its own. Where the workers are not a multiple of the devices, there are no parts.
std::vector<int> with_parts(const std::vector<int>& node_of_device, int workers) {
  const auto parts = static_cast<std::size_t>(workers) / node_of_device.size();
  if (parts < 2 || static_cast<std::size_t>(workers) % node_of_device.size() != 0)
    return node_of_device;
  std::vector<int> nodes;
  for (const int node : node_of_device)
    nodes.insert(nodes.end(), parts, node);
  return nodes;
}

/// A variable as the workers will have it; null: not set.
const std::string* workers_variable(std::string_view name, const Environment& environment,
                                    const AgentOptions& agent) {
  if (const auto given = agent.worker_environment.find(std::string(name));
      given != agent.worker_environment.end())
    return &given->second;
  const auto inherited = environment.find(name);
  return inherited == environment.end() ? nullptr : &inherited->second;
}

}  // namespace

Checked<WorkerCount> count_workers(const WorkerCountRequest& request) {
  const std::string_view text = request.text;
  if (const auto number = parse_python_int(text)) {
    if (*number > kMaxWorkers)
      return FlagError{request.flag + " is " + python_repr(text) + ": at most " +
                       std::to_string(kMaxWorkers) + " workers on one node"};
    return WorkerCount{.workers = static_cast<int>(std::max<std::int64_t>(*number, 0)),
                       .cuda_visible_devices = {}};
  }
  const auto result = [](int workers) {
    return WorkerCount{.workers = workers, .cuda_visible_devices = {}};
  };
  const auto of_cpus = [&request] {
    return WorkerCount{
        .workers = request.facts.cpus(), .cuda_visible_devices = {}, .of_cpus = true};
  };
  if (text == "cpu") return of_cpus();
  if (text == "gpu") {
    const int gpus = request.facts.gpus();
    if (gpus <= 0) return no_device_error(request, "GPU");
    return result(gpus);
  }
  if (text == "xpu") {
    const int xpus = request.facts.xpus();
    if (xpus <= 0) return no_device_error(request, "XPU");
    return result(xpus);
  }
  if (text == "auto") {
    if (const int gpus = request.facts.gpus(); gpus > 0) return result(gpus);
    if (const int xpus = request.facts.xpus(); xpus > 0) return result(xpus);
    return of_cpus();
  }
  if (text.starts_with("gpu:")) return chosen_gpus(request);
  return FlagError{request.flag + " is " + python_repr(text) +
                   ": give a number, gpu, xpu, cpu, auto, or GPUs by number as in gpu:0,2"};
}

Checked<void> check_virtual_devices(const AgentOptions& options, const Environment& environment) {
  const std::string* hip = workers_variable(kHipVisibleDevices, environment, options);
  const std::string_view list = variable_of_devices(options, hip == nullptr ? "" : *hip);
  const std::string* devices = workers_variable(list, environment, options);
  if (devices == nullptr) return {};
  const auto entries = split(*devices, ',').size();
  if (entries >= static_cast<std::size_t>(options.local_world_size)) return {};
  return FlagError{"--virtual-local-rank gives each worker one entry of " + std::string(list) +
                   ", but that is " + python_repr(*devices) + " and there are " +
                   std::to_string(options.local_world_size) +
                   " workers; list more devices or start fewer workers"};
}

Checked<void> plan_numa(const Flags& flags, const Environment& environment, const NodeFacts& facts,
                        LaunchPlan& plan) {
  if (!flags.numa_binding) return {};
  const std::string name = flags.name_of(&Flags::numa_binding);
  const int workers = plan.agent.local_world_size;
  Environment variables = environment;
  for (const auto& [variable, value] : plan.agent.worker_environment)
    variables[variable] = value;
  Checked<NumaFacts> machine = facts.numa(variables);
  if (!machine) return FlagError{name + ": " + machine.error().message};
  std::vector<int> nodes = machine->node_of_device;
  if (nodes.empty()) {
    plan.notices.push_back(name +
                           ": no GPU is visible whose NUMA node the kernel shows (NVIDIA's, AMD's "
                           "and Intel's are looked for), so the workers are shared out evenly over "
                           "the NUMA nodes, in the order of their local ranks");
    nodes = spread_over_nodes(machine->topology, workers);
  }
  if (machine->may_have_parts) nodes = with_parts(nodes, workers);
  auto cpus = plan_cpus(binding_of(*flags.numa_binding), machine->topology, nodes, workers);
  if (!cpus) return FlagError{name + " " + *flags.numa_binding + ": " + cpus.error().text};
  plan.agent.cpus = *std::move(cpus);
  return {};
}

}  // namespace muster
