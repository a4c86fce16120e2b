// The tables of musterd's state file, and how older ones become those of today.
//
// The record columns hold the JSON texts of rendezvous/wire/run_record_codec.h; new fields there
// need no new version here, if a reader can do without them.
#pragma once

#include "rendezvous/state/database.h"

namespace muster {

/// In the file's header, for file(1) and for us: "mstr".
inline constexpr std::int64_t kStateApplicationId = 0x6d737472;
inline constexpr std::int64_t kStateVersion = 1;

/// Makes the tables of an empty database, or brings an older one's to kStateVersion. Part of the
/// caller's transaction. The version must be at most kStateVersion.
DatabaseResult<void> migrate_state(Database& database);

}  // namespace muster
