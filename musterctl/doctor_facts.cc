#include "musterctl/doctor_facts.h"

#include <netdb.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/take_line.h"
#include "base/temporary_places.h"
#include "musterctl/answer_json.h"
#include "musterctl/host_states.h"
#include "musterctl/interfaces.h"
#include "musterctl/python_program.h"
#include "musterctl/run_text.h"

namespace muster::ctl {
namespace {

namespace fs = std::filesystem;

void gather_names(DoctorFacts& facts) {
  facts.host_name = own_host_name();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int failed = ::getaddrinfo(facts.host_name.c_str(), nullptr, &hints, &list);
      failed != 0) {
    facts.host_error = ::gai_strerror(failed);
    return;
  }
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next)
    facts.host_addresses.push_back(numeric_address(one->ai_addr));
  ::freeaddrinfo(list);
}

double wall_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void gather_clock(const Endpoint& musterd, const TokenCrypto* token, EndpointFacts& facts) {
  // musterd answers alike requests within a quarter of a second with one view. No other request has
  // this offset, so the view and its time are made for this one.
  const auto offset = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string target = "/api/v1/runs?limit=0&offset=" + std::to_string(offset);
  const double before = wall_seconds();
  const auto answer = get(musterd, target, token);
  const double after = wall_seconds();
  if (!answer) {
    facts.error = answer.error().reason;
    return;
  }
  if (answer->token_refused || (answer->status != 200 && musterd_error(answer->body))) {
    facts.error = error_text(*answer);
    facts.refused = true;
    return;
  }
  const auto json = parse_json(answer->body);
  if (answer->status != 200 || !json.is_object() || !json.contains("at") ||
      !json["at"].is_string()) {
    facts.error = "what answers there is not musterd's HTTP (musterd --http)";
    return;
  }
  if (const auto theirs = parse_time(json["at"].get<std::string>()))
    facts.clock_ahead_seconds = (before + after) / 2 - *theirs;
}

EndpointFacts gather_endpoint(const std::string& what, const Endpoint& endpoint) {
  const Reach found = reach(endpoint);
  return {.what = what,
          .endpoint = endpoint.text(),
          .error = found.error,
          .refused = false,
          .addresses = found.addresses,
          .connect_ms = found.connect_ms,
          .clock_ahead_seconds = std::nullopt};
}

void gather_rendezvous(const DoctorTargets& targets, DoctorFacts& facts) {
  std::vector<HostPlaces> places;
  for (const Endpoint& endpoint : targets.rendezvous) {
    facts.endpoints.push_back(gather_endpoint(kRendezvous, endpoint));
    places.push_back({endpoint, facts.endpoints.back().addresses});
  }
  const auto addresses = std::accumulate(
      places.begin(), places.end(), std::size_t{0},
      [](std::size_t sum, const HostPlaces& place) { return sum + place.addresses.size(); });
  if (addresses > 1) facts.hosts = ask_hosts(places, {targets.run, targets.token, targets.tls});
}

void gather_limits(DoctorFacts& facts) {
  const auto add = [&](const char* name, auto resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) return;
    facts.limits[name] = limit.rlim_cur == RLIM_INFINITY ? kNoLimit : limit.rlim_cur;
  };
  add("nofile", RLIMIT_NOFILE);
  add("nproc", RLIMIT_NPROC);
  add("memlock", RLIMIT_MEMLOCK);
}

void gather_user(DoctorFacts& facts) {
  const uid_t uid = ::geteuid();
  facts.uid = uid;
  facts.has_user_name = ::getpwuid(uid) != nullptr;
  const char* home = std::getenv("HOME");
  facts.home = home == nullptr ? "" : home;
  facts.home_is_writable = !facts.home.empty() && ::access(facts.home.c_str(), W_OK | X_OK) == 0;
  // Python's getpass.getuser(), which torch.compile calls, reads these before it asks for the name.
  for (const char* name : {"LOGNAME", "USER", "LNAME", "USERNAME"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      facts.user_variable = name;
  const char* cache = std::getenv("TORCHINDUCTOR_CACHE_DIR");
  facts.has_compile_cache = cache != nullptr && *cache != '\0';
}

FolderFacts gather_folder(const std::string& what, const std::string& path) {
  FolderFacts folder{.what = what, .path = path};
  // A folder that does not exist yet will be created in its closest existing ancestor.
  fs::path there = fs::absolute(path);
  std::error_code ec;
  while (there.has_relative_path() && !fs::exists(there, ec))
    there = there.parent_path();
  folder.writable = ::access(there.c_str(), W_OK | X_OK) == 0;
  struct statvfs room {};
  if (::statvfs(there.c_str(), &room) == 0) folder.free_bytes = room.f_bavail * room.f_frsize;
  return folder;
}

// The first place that can be written, as for the temporary files of muster and of Python.
FolderFacts gather_temporary_folder(std::vector<std::string> places) {
  FolderFacts first = gather_folder("TMPDIR", places.front());
  if (first.writable && fs::exists(first.path)) return first;
  first.writable = false;
  places.emplace_back(".");
  for (std::size_t i = 1; i < places.size(); ++i) {
    std::error_code ec;
    if (!fs::is_directory(places[i], ec)) continue;
    FolderFacts next = gather_folder("TMPDIR", places[i]);
    next.instead_of = first.path;
    if (next.writable) return next;
  }
  return first;
}

// Reads the metadata only: importing torch takes seconds.
constexpr const char* kVersions =
    "import sys, importlib.metadata as m\n"
    "print(sys.executable); print(\"Python \" + sys.version.split()[0])\n"
    "def version(*names):\n"
    "  for name in names:\n"
    "    try: return m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "  return \"\"\n"
    "print(version(\"torch\"))\n"
    "print(version(\"nvidia-nccl-cu13\", \"nvidia-nccl-cu12\"))";

void gather_python(DoctorFacts& facts) {
  const PythonAnswer answer = run_python(kVersions, std::chrono::seconds(10));
  facts.python_problem = answer.problem;
  std::string_view text = answer.output;
  facts.python = take_line(text);
  facts.python_version = take_line(text);
  facts.torch_version = take_line(text);
  facts.nccl_version = take_line(text);
}

// Imports torch, which takes seconds: called only if there are GPUs.
void gather_torch_gpus(DoctorFacts& facts) {
  const PythonAnswer answer =
      run_python("import torch; print(torch.cuda.device_count())", std::chrono::seconds(60));
  unsigned count = 0;
  if (std::sscanf(answer.output.c_str(), "%u", &count) == 1) facts.torch_gpus = count;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr)
    facts.visible_gpus = visible;
}

unsigned count_folders(const fs::path& folder, const std::string& prefix) {
  unsigned count = 0;
  std::error_code ec;
  for (fs::directory_iterator entry(folder, ec), end; !ec && entry != end; entry.increment(ec)) {
    const std::string name = entry->path().filename().string();
    const std::string rest = name.starts_with(prefix) ? name.substr(prefix.size()) : "x";
    const bool numbered = rest.find_first_not_of("0123456789:.abcdef") == std::string::npos;
    count += numbered && !rest.empty() ? 1 : 0;
  }
  return count;
}

}  // namespace

std::optional<double> parse_time(const std::string& text) {
  std::tm time{};
  int milliseconds = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &milliseconds) != 7)
    return std::nullopt;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<double>(::timegm(&time)) + milliseconds / 1000.0;
}

DoctorFacts gather_facts(const DoctorTargets& targets) {
  DoctorFacts facts;
  facts.asked_python = !targets.quick;
  gather_names(facts);
  gather_user(facts);
  facts.interfaces = local_interfaces();
  facts.loopback_is_down = loopback_is_down();
  facts.interface_variables = interface_variables();
  gather_rendezvous(targets, facts);
  if (targets.musterd) {
    EndpointFacts endpoint = gather_endpoint("musterd's HTTP", *targets.musterd);
    if (endpoint.error.empty()) gather_clock(*targets.musterd, targets.token.get(), endpoint);
    facts.endpoints.push_back(std::move(endpoint));
  }
  struct statvfs room {};
  if (::statvfs("/dev/shm", &room) == 0) {
    facts.shm_bytes = room.f_blocks * room.f_frsize;
    facts.shm_free_bytes = room.f_bavail * room.f_frsize;
  }
  gather_limits(facts);
  facts.cores = std::max(1U, std::thread::hardware_concurrency());
  facts.gpus = count_folders("/proc/driver/nvidia/gpus", "");
  facts.cgroup = own_cgroup_limits();
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  facts.folders.push_back(gather_temporary_folder(temporary_places(variable)));
  if (!targets.log_dir.empty())
    facts.folders.push_back(gather_folder("--log-dir", targets.log_dir));
  if (!targets.checkpoint_dir.empty())
    facts.folders.push_back(gather_folder("--checkpoint-dir", targets.checkpoint_dir));
  if (!targets.quick) {
    gather_python(facts);
    facts.gpu_health = gpu_health();
    const auto known = static_cast<unsigned>(facts.gpu_health.gpus.size());
    facts.gpus = std::max(facts.gpus, known);
    if (facts.gpus > 0) facts.gpu_errors = gpu_errors();
    if (facts.gpus > 0 && !facts.torch_version.empty()) gather_torch_gpus(facts);
  }
  facts.numa_nodes = std::max(1U, count_folders("/sys/devices/system/node", "node"));
  return facts;
}

}  // namespace muster::ctl
