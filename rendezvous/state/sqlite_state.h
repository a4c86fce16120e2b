// The state of a run service in a folder: one SQLite file, written by a thread of its own.
//
// docs/decisions/0016-state-on-disk.md. What is in the file: schema.h.
#pragma once

#include <memory>
#include <string>

#include <boost/system/result.hpp>

#include "rendezvous/service/run_state.h"

namespace muster {

struct StateFileError {
  std::string reason;  // A sentence for the user: which file, what is wrong, what to do.
};

struct SqliteStateOptions {
  std::string folder;  // Made if it is not there; its parent must be.
  std::size_t history = 1'000;
};

inline constexpr const char* kStateFile = "musterd.db";

/// Opens, and if need be makes or migrates, the file. A file that is not ours, is damaged, or was
/// written by a newer muster is an error, and stays as it is; so is a folder that another process
/// uses. Blocks; the object's record() does not.
boost::system::result<std::unique_ptr<RunState>, StateFileError> open_sqlite_state(
    const SqliteStateOptions& options);

}  // namespace muster
