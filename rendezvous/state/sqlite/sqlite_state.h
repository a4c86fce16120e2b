// Keeps the state of a run service in a folder: one SQLite file, written by its own thread.
//
// docs/decisions/0016-state-on-disk.md. schema.h has the tables.
#pragma once

#include <memory>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/state/run_state.h"

namespace muster {

struct StateFileError {
  std::string reason;  // A sentence for the user: the file, the problem, and what to do.
};

struct SqliteStateOptions {
  std::string folder;  // Created if it does not exist. Its parent must exist.
  std::size_t history = 1'000;
};

inline constexpr const char* kStateFile = "musterd.db";

/// Opens the file, and creates or migrates it if necessary. Errors: the file belongs to another
/// program, is damaged, or was written by a newer muster (it is not changed), or another process
/// uses the folder. This function blocks. The object's record() does not.
boost::system::result<std::unique_ptr<RunState>, StateFileError> open_sqlite_state(
    const SqliteStateOptions& options);

}  // namespace muster
