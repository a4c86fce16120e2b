#include "agent/io/run_dir.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/core/log_plan.h"
#include "agent/io/owned_folder.h"
#include "base/from_errno.h"
#include "base/system/same_file.h"

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
  const LogOptions& log = options.log;
  if (log.discard) return dir;
  dir.run_name_ = run_dir_name(options.run_id, random_name(8));
  dir.workers_ = options.local_world_size;
  const bool has_logs = writes_logs(log.redirects) || writes_logs(log.tee);
  dir.is_needed_ = has_logs || log.specs || !log.dir.empty() ||
                   !log.duplicate_stdout_filters.empty() || !log.duplicate_stderr_filters.empty();
  if (!log.dir.empty()) {
    std::error_code ec;
    dir.log_dir_ = fs::absolute(log.dir, ec);
    return dir;
  }
  // Without logs there are only error files of a few kB: those go to memory, because directories on
  // a busy disk cost milliseconds each at the job's end (measured: 2 workers 10 ms, 64 workers
  // 240 ms, against 1.4 and 2.4 ms in memory).
  const bool is_small = log.specs || !has_logs;
  using Content = TemporaryFolder::Content;
  dir.temporary_ =
      TemporaryFolder::choose(is_small ? Content::Small : Content::Large, own_variable);
  return dir;
}

error_code RunDir::create(std::string& what_failed) {
  if (run_name_.empty()) return {};
  if (log_dir_.empty()) return create_in_temporary_folder(what_failed);
  what_failed = log_dir_;
  return create_in_log_dir();
}

error_code RunDir::create_in_temporary_folder(std::string& what_failed) {
  const error_code error = temporary_.create([this](const std::string& folder) -> error_code {
    if (const error_code no_room = check_room(folder, workers_)) return no_room;
    path_ = fs::path(folder) / run_name_;
    return ::mkdir(path_.c_str(), 0700) == 0 ? error_code{} : from_errno(errno);
  });
  what_failed = temporary_.places();
  if (error) path_.clear();
  if (const std::string passed_over = temporary_.passed_over(); !error && !passed_over.empty())
    fallback_ =
        "cannot use " + passed_over + " for error files and logs: they go to " + temporary_.place();
  return error;
}

error_code RunDir::create_in_log_dir() {
  std::error_code ec;
  fs::path folder;
  for (const fs::path& part : fs::path(log_dir_)) {
    folder /= part;
    // Whatever the umask is, no other user may rename what is in a folder that muster has made.
    if (::mkdir(folder.c_str(), 0755) == 0) continue;
    const int error = errno;  // is_directory() also sets errno: to ENOENT, on a read-only disk.
    if (error != EEXIST && !fs::is_directory(folder, ec)) return from_errno(error);
  }
  if (!fs::is_directory(log_dir_, ec)) return from_errno(ENOTDIR);
  const std::string path = fs::path(log_dir_) / run_name_;
  struct stat info {};
  if (::mkdir(path.c_str(), 0700) != 0 || ::lstat(path.c_str(), &info) != 0)
    return from_errno(errno);
  made_on_local_disk_ = is_local_disk(path);
  if (made_on_local_disk_ && !is_own_folder(info)) return from_errno(EPERM);
  made_ = info;
  path_ = path;
  return {};
}

// `found` has another identity than the folder that was made. On a disk of this machine alone, the
// kernel then vouches for the owner, and nobody can move a folder that others may not write. Other
// file systems (FUSE, SMB, NFS) may give a folder a new number or, after a remount, be another
// device: there only a strange owner is a sign of an attack.
bool RunDir::may_be_planted(const struct stat& found) const {
  if (!S_ISDIR(found.st_mode)) return true;
  const bool is_own = found.st_uid == ::geteuid();
  if (!made_on_local_disk_) return !is_own && found.st_uid != made_->st_uid;
  struct stat parent {};
  const bool is_open_to_others =
      ::stat(log_dir_.c_str(), &parent) != 0 ||
      ((parent.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (parent.st_mode & S_ISVTX) == 0);
  return !is_own || is_open_to_others || !is_local_disk(path_);
}

bool RunDir::restore_in_log_dir() {
  if (!made_) return true;
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0) {
    if (is_same_file(*made_, info)) return true;
    if (may_be_planted(info)) return false;
    spdlog::warn("{} has another number than before (a remount, or FUSE): muster goes on with it",
                 path_);
    made_ = info;
    return true;
  }
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
  if (temporary_.path().empty()) return;
  // Backwards, because children come after their parents in the list.
  for (auto dir = directories.rbegin(); dir != directories.rend(); ++dir)
    if (dir->starts_with(path_ + "/")) ::rmdir(dir->c_str());
}

void RunDir::remove(bool success) const {
  temporary_.remove(success);
}

}  // namespace muster
