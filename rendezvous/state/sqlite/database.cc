#include "rendezvous/state/sqlite/database.h"

#include <fcntl.h>

#include <utility>

#include "base/from_errno.h"
#include "base/system/owned_fd.h"

namespace muster {
namespace {

DatabaseError error_of(sqlite3* connection) {
  const int code = sqlite3_extended_errcode(connection);
  DatabaseError error{code, sqlite3_errmsg(connection)};
  // SQLite's own text does not say what the system has said: "disk I/O error" for a full disk.
  const int cause = sqlite3_system_errno(connection);
  const bool of_the_system = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  if (of_the_system && cause != 0) error.text += " (" + from_errno(cause).message() + ")";
  return error;
}

/// SQLite would create the file with the umask's mode, and gives its other files the mode of this
/// one. If this fails, SQLite finds out why. The descriptor is closed before SQLite opens the file:
/// closing it later would end SQLite's locks.
void create_private(const std::string& path) {
  const OwnedFd created(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

}  // namespace

// --- statements ----------------------------------------------------------------------------------

void Statement::bind(int index, std::string_view text) {
  sqlite3_bind_text(statement_.get(), index, text.data(), static_cast<int>(text.size()),
                    SQLITE_TRANSIENT);
}

void Statement::bind(int index, std::int64_t number) {
  sqlite3_bind_int64(statement_.get(), index, number);
}

DatabaseResult<bool> Statement::step() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return error_of(sqlite3_db_handle(statement_.get()));
}

DatabaseResult<void> Statement::run() {
  const auto stepped = step();
  sqlite3_reset(statement_.get());
  if (!stepped) return stepped.error();
  return {};
}

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::int64_t Statement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

// --- the database --------------------------------------------------------------------------------

DatabaseResult<Database> Database::open(const std::string& path) {
  create_private(path);
  sqlite3* connection = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &connection,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  if (connection == nullptr) return DatabaseError{SQLITE_NOMEM, "out of memory"};
  Database database(connection);
  if (result != SQLITE_OK) return database.error();
  sqlite3_extended_result_codes(connection, 1);
  sqlite3_busy_timeout(connection, 5'000);  // A backup may hold the file for a moment.
  return database;
}

DatabaseError Database::error() const {
  return error_of(connection_.get());
}

DatabaseResult<void> Database::execute(const std::string& sql) {
  if (sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return error();
  return {};
}

DatabaseResult<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(connection_.get(), sql.data(), static_cast<int>(sql.size()), &statement,
                         nullptr) != SQLITE_OK)
    return error();
  return Statement(statement);
}

DatabaseResult<std::int64_t> Database::number(const std::string& sql) {
  auto statement = prepare(sql);
  if (!statement) return statement.error();
  const auto row = statement->step();
  if (!row) return row.error();
  return *row ? statement->number(0) : 0;
}

DatabaseResult<std::string> Database::text(const std::string& sql) {
  auto statement = prepare(sql);
  if (!statement) return statement.error();
  const auto row = statement->step();
  if (!row) return row.error();
  return *row ? statement->text(0) : std::string();
}

void Database::disable_checkpoint_on_close() {
  sqlite3_db_config(connection_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

}  // namespace muster
