#include "launcher/numa_topology.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "base/system/library_function.h"

namespace muster {
namespace {

// The functions of hwloc that are needed, loaded on demand: without --numa-binding, muster neither
// loads the library nor needs it.
struct Hwloc {
  static constexpr const char* kLibrary = "libhwloc.so.15";  // The ABI of every hwloc 2.

  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_set_flags) set_flags = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_get_type_depth) type_depth = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) count = nullptr;
  decltype(&hwloc_get_obj_by_depth) object = nullptr;
  decltype(&hwloc_bitmap_next) next = nullptr;

  /// Returns what is missing, or an empty text. The library stays loaded, which does not affect the
  /// workers: they are other processes.
  std::string open() {
    void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return ::dlerror();
    const bool complete = find_function(library, "hwloc_topology_init", init) &&
                          find_function(library, "hwloc_topology_set_flags", set_flags) &&
                          find_function(library, "hwloc_topology_load", load) &&
                          find_function(library, "hwloc_topology_destroy", destroy) &&
                          find_function(library, "hwloc_get_type_depth", type_depth) &&
                          find_function(library, "hwloc_get_nbobjs_by_depth", count) &&
                          find_function(library, "hwloc_get_obj_by_depth", object) &&
                          find_function(library, "hwloc_bitmap_next", next);
    return complete ? std::string() : ::dlerror();
  }
};

class Reader {
 public:
  Reader(const Hwloc& hwloc, hwloc_topology_t topology) : hwloc_(hwloc), topology_(topology) {}

  NumaTopology read() const {
    NumaTopology result;
    each(HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t object) {
      result.nodes[static_cast<int>(object->os_index)] = cpus_of(object);
    });
    each(HWLOC_OBJ_PACKAGE, [&](hwloc_obj_t object) {
      result.packages[static_cast<int>(object->os_index)] = cpus_of(object);
    });
    each(HWLOC_OBJ_CORE, [&](hwloc_obj_t object) { result.cores.push_back(cpus_of(object)); });
    // For each CPU the cache nearest to the root. On hybrid machines their levels differ.
    std::set<hwloc_obj_t> seen;
    each(HWLOC_OBJ_PU, [&](hwloc_obj_t object) {
      hwloc_obj_t last = nullptr;
      for (hwloc_obj_t at = object->parent; at != nullptr; at = at->parent)
        if (at->type >= HWLOC_OBJ_L1CACHE && at->type <= HWLOC_OBJ_L5CACHE) last = at;
      if (last != nullptr && seen.insert(last).second) result.caches.push_back(cpus_of(last));
    });
    return result;
  }

 private:
  template <typename Visit>
  void each(hwloc_obj_type_t type, const Visit& visit) const {
    const int depth = hwloc_.type_depth(topology_, type);
    const unsigned count = hwloc_.count(topology_, depth);  // 0 if there is no such depth.
    for (unsigned i = 0; i < count; ++i)
      visit(hwloc_.object(topology_, depth, i));
  }

  CpuSet cpus_of(hwloc_obj_t object) const {
    CpuSet cpus;
    if (object->cpuset == nullptr) return cpus;
    for (int cpu = hwloc_.next(object->cpuset, -1); cpu >= 0;
         cpu = hwloc_.next(object->cpuset, cpu))
      cpus.insert(cpu);
    return cpus;
  }

  const Hwloc& hwloc_;
  hwloc_topology_t topology_;
};

}  // namespace

boost::system::result<NumaTopology, NumaReadError> read_numa_topology() {
  Hwloc hwloc;
  if (const std::string missing = hwloc.open(); !missing.empty())
    return NumaReadError{
        "hwloc's library is needed (libhwloc15 in Debian and Ubuntu, hwloc-libs "
        "in Fedora and Red Hat): " +
        missing};
  hwloc_topology_t raw = nullptr;
  if (hwloc.init(&raw) != 0)
    return NumaReadError{std::string("hwloc cannot begin: ") + std::strerror(errno)};
  const std::unique_ptr<hwloc_topology, decltype(hwloc.destroy)> topology(raw, hwloc.destroy);
  // CPUs outside of this process's cpuset are read, too: the lowest thread identifies a core.
  hwloc.set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc.load(raw) != 0)
    return NumaReadError{std::string("hwloc cannot read this machine: ") + std::strerror(errno)};
  NumaTopology result = Reader(hwloc, raw).read();
  result.allowed = allowed_cpus();
  return result;
}

CpuSet allowed_cpus() {
  // The kernel refuses a mask that is shorter than its own.
  constexpr std::size_t kMaxCpus = 1 << 20;
  CpuSet cpus;
  for (std::size_t size = 1024; size <= kMaxCpus; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(size), [](cpu_set_t* set) { CPU_FREE(set); });
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    if (mask == nullptr || ::sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    for (std::size_t cpu = 0; cpu < size; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.insert(static_cast<int>(cpu));
    break;
  }
  return cpus;
}

boost::system::result<std::vector<int>, NumaReadError> numa_nodes_of(
    const std::vector<std::string>& pci_addresses, const std::string& devices_folder) {
  std::vector<int> nodes;
  for (const std::string& address : pci_addresses) {
    std::string file = devices_folder;
    file.append("/").append(address).append("/numa_node");
    int node = 0;
    if (!(std::ifstream(file) >> node))
      return NumaReadError{std::string("cannot read the NUMA node of the device at ")
                               .append(address)
                               .append(" from ")
                               .append(file)};
    nodes.push_back(node);
  }
  return nodes;
}

}  // namespace muster
