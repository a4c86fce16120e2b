// What the results of stat() say about files.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace muster {

inline bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Whether it is a folder of this process's user. For the result of lstat(): a link is none.
inline bool is_own_folder(const struct stat& info) {
  return S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace muster
