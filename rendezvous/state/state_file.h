// The state file of a folder: opened with every check, read as a whole, changed in transactions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/net/listener.h"
#include "rendezvous/state/database.h"
#include "rendezvous/state/sqlite_state.h"

namespace muster {

class StateFile {
 public:
  /// As open_sqlite_state() says.
  static boost::system::result<StateFile, StateFileError> open(const std::string& folder);

  /// What was in it when it was opened. Once.
  StoredState take_loaded() { return std::exchange(loaded_, {}); }
  /// In one transaction: all of it is durable, or nothing has changed. At most `history` ended runs
  /// are kept.
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

  OwnedFd lock_;  // Of the folder, while this object lives.
  Database database_;
  std::string path_;
  StoredState loaded_;
};

}  // namespace muster
