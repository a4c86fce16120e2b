// Lists and removes the snapshot files of a run in their folder. Private.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace muster {

/// The round in which a snapshot was written, from the variables of the launcher.
struct SnapshotWriter {
  std::string run_id;
  std::int64_t generation = -1;  // -1: the launcher has set no generation.
};

struct SnapshotFile {
  std::filesystem::path path;
  std::int64_t epoch = 0;  // From the file's name.
  std::int64_t order = 0;  // The number of the save in this folder.
  SnapshotWriter writer;
  std::string refused;      // Why the file is not usable. Empty if it is usable.
  bool unreadable = false;  // The file system could not read the file.
};

class SnapshotFolder {
 public:
  SnapshotFolder(std::filesystem::path folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  std::filesystem::path file(std::int64_t epoch) const;
  /// Returns all files with names of this form. The usable files come first, the last written one
  /// at the front. Then come the unusable files, the highest epoch first. Empty if the folder does
  /// not exist. Throws Error if the folder cannot be read. Reads only a small part of each file.
  std::vector<SnapshotFile> list() const;
  /// Removes the partial files of writers that were killed.
  void remove_partials() const;
  /// Removes all usable files except the last `keep`. Never removes `written`.
  void prune(std::vector<SnapshotFile> files, const std::filesystem::path& written, int keep) const;

 private:
  std::vector<std::filesystem::path> entries() const;
  std::optional<std::int64_t> epoch_of(const std::string& file_name) const;

  std::filesystem::path folder_;
  std::string name_;
};

/// Throws Error, with `path` in its text, if `snapshot` does not have the entries that Checkpoints
/// writes, with their types.
void check_snapshot(const c10::IValue& snapshot, const std::filesystem::path& path);

}  // namespace muster
