// The tables of musterd's state file, and the migration of older versions.
//
// The record columns hold the JSON texts of rendezvous/state/run_record_codec.h. A new field there
// needs no new version here if readers can do without it.
#pragma once

#include "rendezvous/state/sqlite/database.h"

namespace muster {

/// The application id in the file's header, for file(1) and for this program: "mstr".
inline constexpr std::int64_t kStateApplicationId = 0x6d737472;
inline constexpr std::int64_t kStateVersion = 1;

/// Creates the tables of an empty database, or migrates an older one to kStateVersion, as part of
/// the caller's transaction. The database's version must be at most kStateVersion.
DatabaseResult<void> migrate_state(Database& database);

}  // namespace muster
