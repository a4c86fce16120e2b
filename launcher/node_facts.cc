#include "launcher/node_facts.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <climits>

#include "base/python_text.h"
#include "base/system/cgroup_limits.h"
#include "base/system/system_random.h"
#include "launcher/clusters/hostlist.h"
#include "launcher/devices.h"
#include "launcher/numa_topology.h"
#include "launcher/script_check.h"

namespace muster {
namespace {

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

FirstOfPaths first_that(bool (*passes)(const std::string&)) {
  return [passes](const std::vector<std::string>& paths) {
    const auto found = std::find_if(paths.begin(), paths.end(), passes);
    return found == paths.end() ? std::string() : *found;
  };
}

std::string own_host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxHostListBytes + 1, '\0');  // One more: a longer file is noticed.
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && file.bad())
    return std::nullopt;
  if (!file.is_open()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

Checked<NumaFacts> read_numa_facts(const Environment& variables) {
  auto topology = read_numa_topology();
  if (!topology) return FlagError{topology.error().text};
  const DevicePlaces devices = find_device_places(variables);
  if (devices.are_unknown)
    return FlagError{"the NVIDIA driver does not say where on the PCI bus the GPUs are"};
  auto nodes = numa_nodes_of(devices.pci_addresses);
  if (!nodes) return FlagError{nodes.error().text};
  return NumaFacts{*std::move(topology), *std::move(nodes), devices.may_have_parts};
}

}  // namespace

Environment read_environment() {
  Environment variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string random_uuid() {
  std::array<std::uint8_t, 16> bytes{};
  if (!fill_random(bytes)) throw std::runtime_error(std::string(kNoRandomness));
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    constexpr std::string_view kHex = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text.append({kHex[bytes[i] >> 4], kHex[bytes[i] & 15]});
  }
  return text;
}

NodeFacts node_facts(const Environment& environment, const std::string& argv0) {
  return {
      .cpus = [] { return count_cpus(); },
      .cpu_quota = [] { return own_cgroup_limits().cores; },
      .gpus = [&environment] { return count_gpus(environment); },
      .xpus = [&environment] { return count_xpus(environment); },
      .new_run_id = [] { return random_uuid(); },
      .first_executable = first_that(is_executable_file),
      .first_existing = first_that(exists),
      .argv0 = argv0,
      .host_name = own_host_name,
      .read_file = read_small_file,
      .numa = read_numa_facts,
      .script_problem = script_problem,
  };
}

int terminal_width(const Environment& environment) {
  constexpr int kNarrowest = 40;
  constexpr int kWidest = 160;
  const auto columns = environment.find("COLUMNS");
  if (columns != environment.end())
    if (const auto given = parse_python_int(columns->second); given && *given > 0)
      return static_cast<int>(std::clamp<std::int64_t>(*given, kNarrowest, kWidest));
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::clamp<int>(size.ws_col, kNarrowest, kWidest);
  return 80;
}

}  // namespace muster
