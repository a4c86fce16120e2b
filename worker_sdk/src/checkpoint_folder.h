// The files of a run's snapshots in their folder: which there are, which may go. Private.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace muster {

/// The round in which a snapshot was written, as its launcher named it.
struct SnapshotWriter {
  std::string run_id;
  std::int64_t generation = -1;  // -1: the launcher named none.
};

struct SnapshotFile {
  std::filesystem::path path;
  std::int64_t epoch = 0;  // By its name.
  std::int64_t order = 0;  // The n-th that was written to this folder.
  SnapshotWriter writer;
  std::string refused;      // Why it cannot be used; empty: it can.
  bool unreadable = false;  // Refused by the file system.
};

class SnapshotFolder {
 public:
  SnapshotFolder(std::filesystem::path folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  std::filesystem::path file(std::int64_t epoch) const;
  /// All files of exactly such names, the last written first, and then those that cannot be used,
  /// the highest epoch first. Empty if the folder is not there; throws Error if it cannot be read.
  /// Reads little of each file.
  std::vector<SnapshotFile> list() const;
  /// Removes what writers that were killed have left behind.
  void remove_partials() const;
  /// Removes all that can be used but the last `keep`; never `written`.
  void prune(std::vector<SnapshotFile> files, const std::filesystem::path& written, int keep) const;

 private:
  std::vector<std::filesystem::path> entries() const;
  std::optional<std::int64_t> epoch_of(const std::string& file_name) const;

  std::filesystem::path folder_;
  std::string name_;
};

/// Throws Error that names `path` unless `snapshot` has what Checkpoints writes, with its types.
void check_snapshot(const c10::IValue& snapshot, const std::filesystem::path& path);

}  // namespace muster
