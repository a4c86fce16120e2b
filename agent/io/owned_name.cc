#include "agent/io/owned_name.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "agent/core/run_owner.h"
#include "agent/posix/process_scan.h"
#include "rendezvous/net/system_random.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSuffixLetters = 4;
constexpr int kNamesMax = 4096;
constexpr int kRemovedMax = 64;
constexpr std::size_t kMaxStatBytes = 4096;

// This boot of this machine, and these pids: a directory may be shared with another container, or
// be on a network, where our pids mean nothing.
std::uint32_t here() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(boot, text);
  struct stat pids {};
  if (::stat("/proc/self/ns/pid", &pids) != 0) pids.st_ino = 0;
  return run_place(text + ":" + std::to_string(pids.st_ino));
}

// When the process began, in ticks since the boot, as far as a name holds it; nothing: it is gone.
std::optional<std::uint64_t> start_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const auto start = start_in(read_proc_file(path.c_str(), kMaxStatBytes));
  if (!start) return std::nullopt;
  return *start & ((std::uint64_t{1} << 35) - 1);
}

bool is_ours_to_remove(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return false;
  return S_ISFIFO(info.st_mode) || (S_ISDIR(info.st_mode) && !holds_a_file(path));
}

}  // namespace

std::string random_name(std::size_t count) {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz012345";  // 32: no bias.
  std::array<std::uint8_t, 64> bytes{};
  std::string name;
  if (!fill_random(bytes)) return "unnamed";
  for (std::size_t i = 0; i < std::min(count, bytes.size()); ++i)
    name += kLetters[bytes[i] % 32];
  return name;
}

std::string owned_name() {
  return run_owner_name({here(), ::getpid(), start_of(::getpid()).value_or(0)},
                        random_name(kSuffixLetters));
}

bool holds_a_file(const std::string& dir) {
  // A for loop over the range would throw where another agent removes it at this moment.
  std::error_code ec;
  for (fs::recursive_directory_iterator at(dir, ec), end; !ec && at != end; at.increment(ec)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && at->file_size(gone) > 0 && !gone) return true;
  }
  return ec && ec != std::errc::no_such_file_or_directory;  // What cannot be seen may be one.
}

void remove_what_dead_owners_left(const std::string& folder) {
  const std::uint32_t place = here();
  int names = 0;
  int removed = 0;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end;
       !ec && at != end && names < kNamesMax && removed < kRemovedMax; at.increment(ec), ++names) {
    const auto owner = read_run_owner_name(at->path().filename().string());
    if (!owner || owner->place != place || start_of(owner->pid) == owner->start) continue;
    if (!is_ours_to_remove(at->path())) continue;
    std::error_code failed;
    fs::remove_all(at->path(), failed);
    ++removed;
  }
}

}  // namespace muster
