#include "agent/io/run_dir.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "agent/core/log_plan.h"
#include "agent/core/run_owner.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSuffixLetters = 4;
constexpr int kNamesMax = 4096;
constexpr int kRemovedMax = 64;

boost::system::error_code from_errno(int number) {
  return {number, boost::system::system_category()};
}

bool writes_logs(const StreamMap& map) {
  const auto any = [](StreamSet streams) { return streams.out || streams.err; };
  if (!map.per_rank) return any(map.all);
  return std::any_of(map.by_local_rank.begin(), map.by_local_rank.end(),
                     [&any](const auto& entry) { return any(entry.second); });
}

bool is_in_memory(const char* path) {
  struct statfs info {};
  return path != nullptr && *path == '/' && ::statfs(path, &info) == 0 &&
         info.f_type == TMPFS_MAGIC && ::access(path, W_OK | X_OK) == 0;
}

// Logs may be large: they go where TMPDIR says. Without any, only error files of a few kB can come:
// those go to memory, because directories on a busy disk cost milliseconds each at the job's end
// (measured: 2 workers 10 ms, 64 workers 240 ms, against 1.4 and 2.4 ms in memory).
fs::path temporary_root(const LogOptions& log) {
  if (log.specs || (!writes_logs(log.redirects) && !writes_logs(log.tee)))
    for (const char* path : {static_cast<const char*>(::getenv("XDG_RUNTIME_DIR")), "/dev/shm"})
      if (is_in_memory(path)) return path;
  const char* dir = ::getenv("TMPDIR");
  return dir != nullptr && *dir != '\0' ? dir : "/tmp";
}

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
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The second field, in parentheses, may hold anything; the 22nd is wanted.
  std::istringstream fields(text.substr(std::min(text.rfind(')'), text.size() - 1) + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    fields >> field;
  std::uint64_t start = 0;
  const auto [last, bad] = std::from_chars(field.data(), field.data() + field.size(), start);
  if (bad != std::errc{}) return std::nullopt;
  return start & ((std::uint64_t{1} << 35) - 1);
}

bool has_file(const fs::path& dir) {
  // A for loop over the range would throw where another agent removes it at this moment.
  std::error_code ec;
  for (fs::recursive_directory_iterator at(dir, ec), end; !ec && at != end; at.increment(ec)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && at->file_size(gone) > 0 && !gone) return true;
  }
  return false;
}

}  // namespace

std::string random_name(std::size_t count) {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz012345";  // 32: no bias.
  std::array<unsigned char, 64> bytes{};
  std::string name;
  if (::getrandom(bytes.data(), std::min(count, bytes.size()), 0) < 0) return "unnamed";
  for (std::size_t i = 0; i < std::min(count, bytes.size()); ++i)
    name += kLetters[bytes[i] % 32];
  return name;
}

RunDir RunDir::choose(const AgentOptions& options) {
  RunDir dir;
  if (options.log.discard) return dir;
  std::error_code ec;
  if (options.log.dir.empty()) {
    const fs::path root = temporary_root(options.log);
    dir.base_ = dir.temporary_ =
        root / run_owner_name({here(), ::getpid(), start_of(::getpid()).value_or(0)},
                              random_name(kSuffixLetters));
  } else {
    dir.base_ = fs::absolute(options.log.dir, ec);
  }
  dir.path_ = fs::path(dir.base_) / run_dir_name(options.run_id, random_name(8));
  return dir;
}

boost::system::error_code RunDir::make(std::string& what_failed) const {
  if (base_.empty()) return {};
  what_failed = base_;
  if (!temporary_.empty()) {
    what_failed = fs::path(base_).parent_path();
    if (::mkdir(base_.c_str(), 0700) != 0) return from_errno(errno);
  } else {
    std::error_code ec;
    fs::create_directories(base_, ec);
    if (ec) return from_errno(ec.value());
    if (!fs::is_directory(base_, ec)) return from_errno(ENOTDIR);
  }
  return ::mkdir(path_.c_str(), 0700) == 0 ? boost::system::error_code{} : from_errno(errno);
}

std::vector<std::string> RunDir::entries() const {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator at(path_, ec), end; !ec && at != end; at.increment(ec))
    names.push_back(at->path().filename());
  return names;
}

void RunDir::tidy(bool success) const {
  if (temporary_.empty() || (!success && has_file(temporary_))) return;
  std::error_code ec;
  fs::remove_all(temporary_, ec);
}

void RunDir::tidy_after_dead_owners() const {
  if (temporary_.empty()) return;
  const std::uint32_t place = here();
  int names = 0;
  int removed = 0;
  std::error_code ec;
  for (fs::directory_iterator at(fs::path(temporary_).parent_path(), ec), end;
       !ec && at != end && names < kNamesMax && removed < kRemovedMax; at.increment(ec), ++names) {
    const auto owner = read_run_owner_name(at->path().filename().string());
    if (!owner || owner->place != place || start_of(owner->pid) == owner->start) continue;
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != ::geteuid() || has_file(at->path()))
      continue;
    std::error_code failed;
    fs::remove_all(at->path(), failed);
    ++removed;
  }
}

}  // namespace muster
