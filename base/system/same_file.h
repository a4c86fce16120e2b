// Whether files are the same, or ours.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace muster {

inline bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Whether both descriptors are open and lead to the same file.
inline bool is_one_file(int fd, int other_fd) {
  struct stat a {};
  struct stat b {};
  return ::fstat(fd, &a) == 0 && ::fstat(other_fd, &b) == 0 && is_same_file(a, b);
}

/// Whether `info`, the result of lstat(), is that of a folder of this process's user. A link is not
/// a folder.
inline bool is_own_folder(const struct stat& info) {
  return S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace muster
