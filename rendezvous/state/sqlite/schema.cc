#include "rendezvous/state/sqlite/schema.h"

#include <array>
#include <string>

namespace muster {
namespace {

/// Step N migrates version N to N + 1. The first one begins with an empty file. A released step is
/// never changed: a further step follows it.
constexpr std::array<const char*, kStateVersion> kSteps = {
    R"(
CREATE TABLE run (
  run_id TEXT PRIMARY KEY,
  record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE member (
  run_id TEXT NOT NULL,
  addr TEXT NOT NULL,
  pid INTEGER NOT NULL,
  local_id INTEGER NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (run_id, addr, pid, local_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE ended (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  record TEXT NOT NULL
) STRICT;
)",
};

}  // namespace

DatabaseResult<void> migrate_state(Database& database) {
  const auto version = database.number("PRAGMA user_version");
  if (!version) return version.error();
  if (*version >= kStateVersion) return {};
  std::string sql;
  for (auto step = static_cast<std::size_t>(*version); step < kSteps.size(); ++step)
    sql += kSteps[step];
  sql += "PRAGMA application_id = " + std::to_string(kStateApplicationId) +
         "; PRAGMA user_version = " + std::to_string(kStateVersion);
  return database.execute(sql);
}

}  // namespace muster
