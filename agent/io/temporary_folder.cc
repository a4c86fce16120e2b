#include "agent/io/temporary_folder.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/io/owned_folder.h"
#include "base/from_errno.h"
#include "base/temporary_places.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using boost::system::error_code;

bool is_usable_memory(const std::string& path) {
  if (!is_in_memory(path)) return false;
  // A read-only file system is tried, too: then places() tells the user about it.
  return ::access(path.c_str(), W_OK | X_OK) == 0 || errno == EROFS;
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

}  // namespace

std::string own_variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_in_memory(const std::string& path) {
  struct statfs info {};
  return ::statfs(path.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

Result<std::string> create_lasting_folder(const std::string& prefix) {
  std::vector<std::string> places = temporary_places(own_variable);
  places.emplace_back(".");
  int error = 0;
  for (const std::string& place : places) {
    std::error_code ec;
    std::string path = fs::absolute(place, ec).lexically_normal() / (prefix + "_XXXXXX");
    if (::mkdtemp(path.data()) != nullptr) return path;
    error = errno;
  }
  return from_errno(error);
}

void TemporaryFolder::add(const std::string& place, const std::string& name, Kind kind) {
  std::error_code ec;
  const fs::path folder = fs::absolute(place, ec);
  if (ec) return;  // Relative, and the working directory was removed.
  const std::string path = folder / name;
  const auto same = std::find_if(candidates_.begin(), candidates_.end(),
                                 [&path](const Candidate& one) { return one.path == path; });
  if (same == candidates_.end()) return candidates_.push_back({path, kind});
  if (kind == Kind::Any) same->kind = kind;
}

TemporaryFolder TemporaryFolder::choose(Content content, const Variable& variable) {
  TemporaryFolder folder;
  const std::string name = owned_folder_name();
  const auto add_memory = [&] {
    for (const std::string& place : {variable("XDG_RUNTIME_DIR"), std::string("/dev/shm")})
      if (place.starts_with('/')) folder.add(place, name, Kind::OnlyMemory);
  };
  if (content == Content::Small) add_memory();
  for (const std::string& place : temporary_places(variable))
    folder.add(place, name, Kind::Any);
  if (content == Content::Pipe) add_memory();
  std::error_code ec;
  if (const fs::path here = fs::current_path(ec); !ec) folder.add(here, name, Kind::LastResort);
  return folder;
}

error_code TemporaryFolder::create(const Fill& fill) {
  text_.clear();
  passed_bytes_ = 0;
  if (!path_.empty() && !is_lost() && !fill(path_)) return {};
  error_code error = from_errno(ENOENT);  // If there is no candidate.
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const std::string& path = candidates_[i].path;
    const std::string place = parent_of(path);
    if (candidates_[i].kind == Kind::OnlyMemory && !is_usable_memory(place)) continue;
    if (!text_.empty()) text_.append(" (").append(error.message()).append("), ");
    passed_bytes_ = text_.size() - std::min<std::size_t>(text_.size(), 2);  // Without ", ".
    text_.append(place.empty() ? "/" : place);
    tried_ = std::max(tried_, i + 1);
    Result<OwnedFd> lock = create_owned_folder(path);
    error = lock ? fill(path) : lock.error();
    if (!error) {
      path_ = path;
      lock_ = std::move(*lock);
      return {};
    }
    if (lock) ::rmdir(path.c_str());
  }
  return error;
}

bool TemporaryFolder::is_lost() const {
  if (path_.empty()) return false;
  struct stat named {};
  if (::lstat(path_.c_str(), &named) != 0) return errno == ENOENT || errno == ENOTDIR;
  return !is_same_folder(named, lock_);
}

// Tries all candidates if another process may have created the folder. The storage of the working
// directory may hang, and a process that has other things to do asks it only if it must.
void TemporaryFolder::remove(bool with_files) const {
  const std::size_t count = tried_ == 0 ? candidates_.size() : tried_;
  bool is_usable = false;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [path, kind] = candidates_[i];
    if (kind == Kind::LastResort && tried_ == 0 && is_usable) continue;
    if (kind == Kind::Any)
      is_usable = is_usable || ::access(parent_of(path).c_str(), W_OK | X_OK) == 0;
    std::error_code ec;
    if (with_files || !holds_a_file(path)) fs::remove_all(path, ec);
  }
}

void TemporaryFolder::remove_orphans() const {
  if (!path_.empty()) remove_orphans_in(place());
}

}  // namespace muster
