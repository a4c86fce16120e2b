// The one way to a temporary folder: in the first of several places that can be used.
//
// The name and the places are chosen before muster splits into front, shim and agent, and the agent
// creates the folder: so each of these processes knows what to remove if the others are killed.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/system/owned_fd.h"

namespace muster {

class TemporaryFolder {
 public:
  /// What the folder is for, which decides about the order of its places.
  enum class Content {
    Large,  // Logs: where TMPDIR says, and in the other places that torchrun uses.
    Small,  // A few kB, or a socket: in memory, then as Large.
    Pipe,   // Where TMPDIR says, as under torchrun; it needs no room, so memory will also do.
  };
  /// Takes the name of an environment variable, and returns its value, or "" if it is not set.
  using Variable = std::function<std::string(const char* name)>;
  /// Creates what the folder is for, in the folder of this path.
  using Fill = std::function<boost::system::error_code(const std::string& path)>;

  /// Creates nothing, and does not ask storage.
  static TemporaryFolder choose(Content content, const Variable& variable);

  /// If the folder exists already, only calls `fill`; else, and if that fails, creates the folder
  /// in the first place where that and `fill` succeed. This process then owns it
  /// (agent/io/owned_folder.h) as long as this object lives. Otherwise returns the error of the
  /// last place. The working directory is the last place, and its storage may hang: only a caller
  /// that may wait for storage calls this. If this process can be killed, the process that then
  /// calls remove() must have a copy of this object from before.
  boost::system::error_code create(const Fill& fill);

  /// The places of the last create(), for people: "/tmp (Read-only file system), /var/tmp". The
  /// last of them is the one that is used or, after an error, the one that the error is of.
  const std::string& places() const { return text_; }
  /// The places that the last create() has passed over, with the reasons; empty: none.
  std::string passed_over() const { return text_.substr(0, passed_bytes_); }
  /// The place of the folder.
  std::string place() const { return path_.substr(0, path_.rfind('/')); }

  /// Empty until the folder is created.
  const std::string& path() const { return path_; }
  /// The lock on the folder. Not open if there is no lock.
  const OwnedFd& lock() const { return lock_; }

  /// True if the folder was created, and does not exist any more: it was removed, as
  /// XDG_RUNTIME_DIR is when its user logs out. create() then creates one again, under the same
  /// name: so every process that has a copy of this object knows what to remove.
  bool is_lost() const;

  /// Removes the folder, also one that another process has created. One that holds a file with
  /// content stays, unless `with_files`.
  void remove(bool with_files) const;

  /// Removes folders beside this one to which nothing was written, and whose owners were killed
  /// before they could remove them. Examines a bounded number of names.
  void remove_orphans() const;

 private:
  enum class Kind { Any, OnlyMemory, LastResort };
  struct Candidate {
    std::string path;
    Kind kind = Kind::Any;  // OnlyMemory: passed over without a word if it is not in memory.
  };
  void add(const std::string& place, const std::string& name, Kind kind);

  std::vector<Candidate> candidates_;  // One name in several places.
  std::size_t tried_ = 0;              // The candidates that create() has tried.
  std::string path_;
  OwnedFd lock_;
  std::string text_;
  std::size_t passed_bytes_ = 0;  // The beginning of `text_` that is about places passed over.
};

/// Creates a folder for files that outlive the job, in the first place of Content::Large that can
/// be used. Its name is `prefix`, "_" and six random letters. Returns its path, or the last place's
/// error. May wait for storage.
Result<std::string> create_lasting_folder(const std::string& prefix);

/// The value of this process's environment variable, or "".
std::string own_variable(const char* name);

/// Whether a file system in memory (tmpfs) is at `path`.
bool is_in_memory(const std::string& path);

}  // namespace muster
