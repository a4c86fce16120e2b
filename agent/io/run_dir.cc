#include "agent/io/run_dir.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/core/log_plan.h"
#include "agent/io/owned_folder.h"
#include "rendezvous/core/from_errno.h"
#include "rendezvous/core/temporary_places.h"
#include "rendezvous/net/same_file.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using boost::system::error_code;

// The memory that must be free for each worker, and once more for muster: for a directory and an
// error file with a long traceback, in more than one attempt.
constexpr std::uint64_t kRoomBytes = 65536;
constexpr std::uint64_t kRoomNames = 4;

bool writes_logs(const StreamMap& map) {
  const auto any = [](StreamSet streams) { return streams.out || streams.err; };
  if (!map.per_rank) return any(map.all);
  return std::any_of(map.by_local_rank.begin(), map.by_local_rank.end(),
                     [&any](const auto& entry) { return any(entry.second); });
}

bool is_in_memory(const std::string& path) {
  struct statfs info {};
  return ::statfs(path.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

bool is_usable_memory(const std::string& path) {
  if (!is_in_memory(path)) return false;
  // A read-only file system is tried, too: then fallback() tells the user about it.
  return ::access(path.c_str(), W_OK | X_OK) == 0 || errno == EROFS;
}

std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// Where a directory is created if it is in memory. Logs may be large: they go to
// temporary_places(). Without logs there are only error files of a few kB: those go to memory,
// because directories on a busy disk cost milliseconds each at the job's end (measured: 2 workers
// 10 ms, 64 workers 240 ms, against 1.4 and 2.4 ms in memory).
std::vector<std::string> memory_folders(const LogOptions& log) {
  std::vector<std::string> folders;
  if (log.specs || (!writes_logs(log.redirects) && !writes_logs(log.tee)))
    for (const std::string& path : {variable("XDG_RUNTIME_DIR"), std::string("/dev/shm")})
      if (path.starts_with('/')) folders.push_back(path);
  return folders;
}

// Needed for memory only: tmpfs also limits the number of names, and lets a directory be created
// when no byte can be written. On a full disk the process that writes there gets an error.
error_code check_room(const std::string& path, int workers) {
  struct statvfs info {};
  if (!is_in_memory(path) || ::statvfs(path.c_str(), &info) != 0) return {};
  const auto shares = static_cast<std::uint64_t>(workers) + 1;
  const bool lacks_bytes =
      info.f_blocks != 0 && info.f_bavail * std::uint64_t{info.f_frsize} < shares * kRoomBytes;
  const bool lacks_names = info.f_files != 0 && info.f_favail < shares * kRoomNames;
  return lacks_bytes || lacks_names ? from_errno(ENOSPC) : error_code{};
}

}  // namespace

RunDir RunDir::choose(const AgentOptions& options) {
  RunDir dir;
  if (options.log.discard) return dir;
  std::error_code ec;
  dir.run_name_ = run_dir_name(options.run_id, random_name(8));
  dir.workers_ = options.local_world_size;
  if (!options.log.dir.empty()) {
    dir.log_dir_ = fs::absolute(options.log.dir, ec);
    return dir;
  }
  const std::string name = owned_folder_name();
  const auto add = [&](const std::string& place, bool only_in_memory) {
    const std::string path = fs::absolute(place, ec) / name;
    const auto same = std::find_if(dir.temporaries_.begin(), dir.temporaries_.end(),
                                   [&path](const auto& one) { return one.path == path; });
    if (same == dir.temporaries_.end()) return dir.temporaries_.push_back({path, only_in_memory});
    same->only_in_memory = same->only_in_memory && only_in_memory;
  };
  for (const std::string& place : memory_folders(options.log))
    add(place, true);
  for (const std::string& place : temporary_places(variable))
    add(place, false);
  return dir;
}

error_code RunDir::create(std::string& what_failed) {
  if (run_name_.empty()) return {};
  if (!log_dir_.empty()) {
    what_failed = log_dir_;
    return create_in_log_dir();
  }
  std::string passed_over;  // "/dev/shm (No space left on device), ", and the next.
  for (const auto& [temporary, only_in_memory] : temporaries_) {
    const std::string place = fs::path(temporary).parent_path();
    if (only_in_memory && !is_usable_memory(place)) continue;
    const error_code error = create_temporary(temporary);
    if (!error && !passed_over.empty()) {
      passed_over.resize(passed_over.size() - 2);
      fallback_ = "cannot use " + passed_over;
      fallback_.append(" for error files and logs: they go to ").append(place);
    }
    if (!error) return {};
    what_failed = passed_over + place;
    if (temporary == temporaries_.back().path) return error;
    passed_over.append(place).append(" (").append(error.message()).append("), ");
  }
  return {};
}

error_code RunDir::create_in_log_dir() {
  std::error_code ec;
  fs::path folder;
  for (const fs::path& part : fs::path(log_dir_)) {
    folder /= part;
    // Whatever the umask is, no other user may rename what is in a folder that muster has made.
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST && !fs::is_directory(folder, ec))
      return from_errno(errno);
  }
  if (!fs::is_directory(log_dir_, ec)) return from_errno(ENOTDIR);
  const std::string path = fs::path(log_dir_) / run_name_;
  struct stat info {};
  if (::mkdir(path.c_str(), 0700) != 0 || ::lstat(path.c_str(), &info) != 0)
    return from_errno(errno);
  if (!is_own_folder(info)) return from_errno(EPERM);
  made_ = info;
  path_ = path;
  return {};
}

error_code RunDir::create_temporary(const std::string& temporary) {
  if (const error_code error = check_room(fs::path(temporary).parent_path(), workers_))
    return error;
  Result<OwnedFd> lock = create_owned_folder(temporary);
  if (!lock) return lock.error();
  const std::string path = fs::path(temporary) / run_name_;
  if (::mkdir(path.c_str(), 0700) != 0) {
    const int error = errno;
    ::rmdir(temporary.c_str());
    return from_errno(error);
  }
  lock_ = std::move(*lock);
  created_ = temporary;
  path_ = path;
  return {};
}

bool RunDir::is_lost() const {
  if (created_.empty()) return false;
  struct stat named {};
  struct stat locked {};
  if (::lstat(created_.c_str(), &named) != 0) return errno == ENOENT || errno == ENOTDIR;
  return ::fstat(lock_.get(), &locked) == 0 && !is_same_file(named, locked);
}

bool RunDir::restore_in_log_dir() {
  if (!made_) return true;
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0) return is_same_file(*made_, info);
  if (errno != ENOENT) return true;
  // If this fails, so does the creation of the attempt's directory, which says why.
  [[maybe_unused]] const error_code failed = create_in_log_dir();
  return true;
}

std::vector<std::string> RunDir::entries() const {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator at(path_, ec), end; !ec && at != end; at.increment(ec))
    names.push_back(at->path().filename());
  return names;
}

void RunDir::remove_empty(const std::vector<std::string>& directories) const {
  if (created_.empty()) return;
  // Backwards, because children come after their parents in the list.
  for (auto dir = directories.rbegin(); dir != directories.rend(); ++dir)
    if (dir->starts_with(path_ + "/")) ::rmdir(dir->c_str());
}

// Tries all paths: this process may not be the one that created the directory.
void RunDir::remove(bool success) const {
  std::error_code ec;
  for (const Temporary& temporary : temporaries_)
    if (success || !holds_a_file(temporary.path)) fs::remove_all(temporary.path, ec);
}

void RunDir::remove_orphans() const {
  if (!created_.empty()) remove_orphans_in(fs::path(created_).parent_path());
}

}  // namespace muster
