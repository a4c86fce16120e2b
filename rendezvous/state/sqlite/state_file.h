// The state file of a folder: checked when it is opened, read once as a whole, changed in
// transactions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/net/listener.h"
#include "rendezvous/state/sqlite/database.h"
#include "rendezvous/state/sqlite/sqlite_state.h"

namespace muster {

class StateFile {
 public:
  /// Behaves as open_sqlite_state() describes.
  static boost::system::result<StateFile, StateFileError> open(const std::string& folder);

  /// Moves out the state that the file had when it was opened. To be called once.
  StoredState take_loaded() { return std::exchange(loaded_, {}); }
  /// Writes in one transaction: afterwards all changes are durable, or nothing has changed. Keeps
  /// at most `history` ended runs.
  DatabaseResult<void> write(const StateChanges& changes, std::size_t history);

 private:
  StateFile(OwnedFd lock, Database database, std::string path)
      : lock_(std::move(lock)), database_(std::move(database)), path_(std::move(path)) {}
  std::optional<StateFileError> load();
  boost::system::result<StoredState, StateFileError> read();
  DatabaseResult<void> write_run(const std::string& run_id, const StateChanges::Run& run);
  DatabaseResult<void> write_members(const std::string& run_id, const StateChanges::Run& run);
  DatabaseResult<void> write_all(const StateChanges& changes, std::size_t history);
  StateFileError unreadable(const std::string& what, const std::string& why) const;

  OwnedFd lock_;  // Locks the folder while this object lives.
  Database database_;
  std::string path_;
  StoredState loaded_;
};

}  // namespace muster
