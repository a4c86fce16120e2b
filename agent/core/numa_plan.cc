#include "agent/core/numa_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/check.h"

namespace muster {
namespace {

template <typename T>
using Planned = boost::system::result<T, NumaPlanError>;

CpuSet intersection(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

class Planner {
 public:
  Planner(const NumaTopology& topology, const std::vector<int>& node_of_device)
      : topology_(topology) {
    for (const int node : node_of_device)
      node_of_device_.push_back(std::max(node, 0));
  }

  Planned<CpuSet> plan(NumaBinding binding, std::size_t device) const {
    const int node = node_of_device_[device];
    const auto found = topology_.nodes.find(node);
    if (found == topology_.nodes.end())
      return NumaPlanError{"device " + std::to_string(device) + " is on NUMA node " +
                           std::to_string(node) + ", which this machine does not show"};
    CpuSet cpus = intersection(found->second, topology_.allowed);
    if (cpus.empty())
      return NumaPlanError{"none of the CPUs of NUMA node " + std::to_string(node) +
                           ", where device " + std::to_string(device) +
                           " is, may be used by this process (it may use " +
                           cpu_list(topology_.allowed) + ")"};
    switch (binding) {
      case NumaBinding::Node:
        return cpus;
      case NumaBinding::Socket:
        return socket(node, *cpus.begin());
      case NumaBinding::Exclusive:
        return exclusive(node, cpus, device);
      case NumaBinding::CoreComplex:
        return core_complex(node, cpus, device);
    }
    return cpus;
  }

 private:
  std::optional<int> package_of(int cpu) const {
    for (const auto& [number, cpus] : topology_.packages)
      if (cpus.contains(cpu)) return number;
    return std::nullopt;
  }

  // A node belongs to the package of its first usable CPU. Nodes without a usable CPU are left out;
  // in torch they cause a failure.
  Planned<CpuSet> socket(int node, int first_cpu) const {
    const auto package = package_of(first_cpu);
    if (!package)
      return NumaPlanError{"the machine does not show the socket of NUMA node " +
                           std::to_string(node)};
    CpuSet result;
    for (const auto& [number, all] : topology_.nodes) {
      const CpuSet cpus = intersection(all, topology_.allowed);
      if (!cpus.empty() && package_of(*cpus.begin()) == package)
        result.insert(cpus.begin(), cpus.end());
    }
    return result;
  }

  /// Splits `cpus` by `groups`. The key of a part is the lowest CPU of its whole group, which need
  /// not be among `cpus`. Empty if one of `cpus` is in no group.
  static std::optional<std::map<int, CpuSet>> split(const CpuSet& cpus,
                                                    const std::vector<CpuSet>& groups) {
    std::map<int, CpuSet> parts;
    std::size_t found = 0;
    for (const CpuSet& group : groups) {
      CpuSet part = intersection(group, cpus);
      if (part.empty()) continue;
      found += part.size();
      parts.emplace(*group.begin(), std::move(part));
    }
    if (found != cpus.size()) return std::nullopt;
    return parts;
  }

  /// The position of one device among the devices of its node, and the number of those devices.
  struct Place {
    std::size_t index = 0;
    std::size_t devices = 0;
  };
  Place place_of(std::size_t device) const {
    const auto at = node_of_device_.begin() + static_cast<std::ptrdiff_t>(device);
    const auto count = [at](auto first, auto last) {
      return static_cast<std::size_t>(std::count(first, last, *at));
    };
    return {count(node_of_device_.begin(), at),
            count(node_of_device_.begin(), node_of_device_.end())};
  }

  // If the cores cannot be shared equally, the first devices get one core more.
  Planned<CpuSet> exclusive(int node, const CpuSet& cpus, std::size_t device) const {
    const auto cores = split(cpus, topology_.cores);
    if (!cores)
      return NumaPlanError{"the machine does not show the cores of NUMA node " +
                           std::to_string(node)};
    const Place place = place_of(device);
    const std::size_t share = cores->size() / place.devices;
    const std::size_t rest = cores->size() % place.devices;
    if (share == 0)
      return NumaPlanError{
          "NUMA node " + std::to_string(node) + " has " + std::to_string(cores->size()) +
          " core(s) that may be used, but there are " + std::to_string(place.devices) +
          " devices on it: they cannot each have one of their own"};
    const std::size_t first = place.index * share + std::min(place.index, rest);
    const std::size_t count = share + (place.index < rest ? 1 : 0);
    CpuSet result;
    auto core = std::next(cores->begin(), static_cast<std::ptrdiff_t>(first));
    for (std::size_t i = 0; i < count; ++i, ++core)
      result.insert(core->second.begin(), core->second.end());
    return result;
  }

  // Complexes are sorted by size, the largest first, then by their lowest CPU.
  Planned<CpuSet> core_complex(int node, const CpuSet& cpus, std::size_t device) const {
    const auto parts = split(cpus, topology_.caches);
    if (!parts)
      return NumaPlanError{
          "the machine does not show which CPUs of NUMA node " + std::to_string(node) +
          " share a cache (many virtual machines do not); bind to the node instead"};
    std::vector<CpuSet> complexes;
    for (const auto& [lowest, part] : *parts)
      complexes.push_back(part);
    std::stable_sort(complexes.begin(), complexes.end(),
                     [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
    return complexes[place_of(device).index % complexes.size()];
  }

  const NumaTopology& topology_;
  std::vector<int> node_of_device_;
};

}  // namespace

boost::system::result<CpusByLocalRank, NumaPlanError> plan_cpus(
    NumaBinding binding, const NumaTopology& topology, const std::vector<int>& node_of_device,
    int workers) {
  MUSTER_CHECK(workers >= 0);
  const auto wanted = static_cast<std::size_t>(workers);
  if (node_of_device.size() < wanted)
    return NumaPlanError{"there are " + std::to_string(workers) +
                         " workers on this node, each to be bound near a device of its own, but " +
                         std::to_string(node_of_device.size()) + " visible device(s)"};
  const Planner planner(topology, node_of_device);
  CpusByLocalRank result;
  for (std::size_t device = 0; device < wanted; ++device) {
    Planned<CpuSet> cpus = planner.plan(binding, device);
    if (!cpus) return cpus.error();
    result.push_back(*std::move(cpus));
  }
  return result;
}

std::vector<int> spread_over_nodes(const NumaTopology& topology, int workers) {
  std::vector<int> usable;
  for (const auto& [number, cpus] : topology.nodes)
    if (!intersection(cpus, topology.allowed).empty()) usable.push_back(number);
  std::vector<int> nodes;
  const auto count = static_cast<std::size_t>(std::max(workers, 0));
  nodes.reserve(count);
  for (std::size_t worker = 0; worker < count; ++worker)
    nodes.push_back(usable.empty() ? 0 : usable[worker * usable.size() / count]);
  return nodes;
}

std::string cpu_list(const CpuSet& cpus) {
  std::string text;
  for (auto it = cpus.begin(); it != cpus.end();) {
    const int first = *it;
    int last = first;
    for (++it; it != cpus.end() && *it == last + 1; ++it)
      last = *it;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last != first) text.append("-").append(std::to_string(last));
  }
  return text;
}

}  // namespace muster
