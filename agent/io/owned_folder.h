// Temporary folders in places where every user may create files. The owner of such a folder holds a
// lock on it (flock), which the kernel releases when the owner's process ends. So a later run can
// remove the folder of a run that was killed.

#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

/// `count` characters of a-z and 0-5 from the kernel's random generator, at most 64; or "unnamed"
/// if that fails.
std::string random_name(std::size_t count);

/// A new name for such a folder. It is short, because the path of a socket in the folder may have
/// at most 107 bytes.
std::string owned_folder_name();

/// Creates the folder `path` for this user alone. This process owns it as long as the returned
/// descriptor is open. A new folder is not locked yet: if another process removes it as an orphan
/// in that moment, this function creates it again. If the file system has no locks, there is no
/// lock, and nothing is removed there as an orphan.
Result<OwnedFd> create_owned_folder(const std::string& path);

/// Whether the descriptor leads to a file system that one kernel alone writes to. Every process
/// that sees a folder there sees its lock. Only there are a folder's owner and its inode number
/// what they seem: others may show one owner for all folders (SMB, FUSE), an owner that is not the
/// user who makes a folder (NFS with root_squash), or new numbers after a while (FUSE, remounts).
bool is_local_disk(const OwnedFd& folder);
bool is_local_disk(const std::string& path);

/// Whether `named`, the result of lstat() for a path, is still the folder that `folder` was opened
/// as, as far as its file system tells.
bool is_same_folder(const struct stat& named, const OwnedFd& folder);

/// Whether `dir` contains a file that is not empty, at any depth. True also if it is not readable.
bool holds_a_file(const std::string& dir);

/// Removes folders in `place` that have such a name, belong to this user, and have no owner. A
/// folder that holds a file stays. Examines a bounded number of names. Removes nothing on a file
/// system that other machines may share: a lock there may be known to one machine alone.
void remove_orphans_in(const std::string& place);

}  // namespace muster
