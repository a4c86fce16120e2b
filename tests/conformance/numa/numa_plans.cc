// Plans --numa-binding on invented machines. numa_diff.py compares the plans with torch's own code.
//
// Input and output have one JSON value in each line. Input: {"mode", "devices": [node, ...],
// "workers", "allowed": [cpu, ...]} and the machine, either {"nodes": {number: [cpu, ...]},
// "packages": ..., "cores": [[...]], "caches": [[...]]} or {"fsroot": folder}, an invented /sys
// that hwloc reads. Output: the CPUs of each worker, or {"error": text}.
#include <stdlib.h>

#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "agent/core/numa_plan.h"
#include "launcher/numa_topology.h"

namespace {

using muster::CpuSet;
using nlohmann::json;

muster::NumaBinding binding_of(const std::string& mode) {
  if (mode == "node") return muster::NumaBinding::Node;
  if (mode == "socket") return muster::NumaBinding::Socket;
  if (mode == "exclusive") return muster::NumaBinding::Exclusive;
  return muster::NumaBinding::CoreComplex;
}

std::map<int, CpuSet> numbered(const json& groups) {
  std::map<int, CpuSet> result;
  for (const auto& [number, cpus] : groups.items())
    result[std::stoi(number)] = cpus.get<CpuSet>();
  return result;
}

json answer(const json& request) {
  muster::NumaTopology machine;
  if (request.contains("fsroot")) {
    ::setenv("HWLOC_FSROOT", request.at("fsroot").get<std::string>().c_str(), 1);
    auto read = muster::read_numa_topology();
    if (!read) return {{"error", read.error().text}};
    machine = *std::move(read);
  } else {
    machine.nodes = numbered(request.at("nodes"));
    machine.packages = numbered(request.at("packages"));
    machine.cores = request.at("cores").get<std::vector<CpuSet>>();
    machine.caches = request.at("caches").get<std::vector<CpuSet>>();
  }
  machine.allowed = request.at("allowed").get<CpuSet>();
  const auto cpus = muster::plan_cpus(binding_of(request.at("mode")), machine,
                                      request.at("devices").get<std::vector<int>>(),
                                      request.at("workers").get<int>());
  if (!cpus) return {{"error", cpus.error().text}};
  return *cpus;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(json::parse(line)).dump() << '\n';
  return 0;
}
