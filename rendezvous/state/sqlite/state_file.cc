#include "rendezvous/state/sqlite/state_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/from_errno.h"
#include "base/printable_text.h"
#include "rendezvous/state/run_record_codec.h"
#include "rendezvous/state/sqlite/schema.h"

namespace muster {
namespace {

constexpr const char* kKeep =
    "the file is left as it is: give another --state-dir, or move the file away and lose what it "
    "knows";

std::string errno_text(int number) {
  return from_errno(number).message();
}

boost::system::result<OwnedFd, StateFileError> lock_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return StateFileError{"state directory " + folder + " cannot be made: " + errno_text(errno)};
  const std::string path = folder + "/lock";
  // The folder may be another user's: no link in it leads musterd to a file, and what has a second
  // name elsewhere is not emptied.
  OwnedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (fd.get() < 0) return StateFileError{path + " cannot be opened: " + errno_text(errno)};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
    const std::string pid = std::to_string(::getpid()) + "\n";
    // The pid is for people only. The lock does not need it.
    struct stat info {};
    const bool is_ours = ::fstat(fd.get(), &info) == 0 && info.st_nlink == 1;
    if (is_ours && ::ftruncate(fd.get(), 0) == 0) (void)!::write(fd.get(), pid.data(), pid.size());
    return fd;
  }
  if (errno != EWOULDBLOCK) return StateFileError{path + " cannot be locked: " + errno_text(errno)};
  std::array<char, 16> pid{};
  const ssize_t size = ::read(fd.get(), pid.data(), pid.size());
  std::string holder(pid.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  holder.resize(std::min(holder.find('\n'), holder.size()));
  return StateFileError{"another musterd (pid " + printable_text(holder) +
                        ") uses state directory " + folder + ": each musterd needs its own"};
}

/// Checks the file's first bytes without SQLite, which could change the file. Empty: SQLite may
/// open the file.
std::optional<StateFileError> check_header(const std::string& path) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 && errno == ENOENT) return std::nullopt;
  if (fd.get() < 0) return StateFileError{path + " cannot be opened: " + errno_text(errno)};
  std::array<char, 100> header{};
  const ssize_t size = ::pread(fd.get(), header.data(), header.size(), 0);
  if (size < 0) return StateFileError{path + " cannot be read: " + errno_text(errno)};
  // The file is empty, or the machine stopped while it was created. SQLite rolls that back.
  if (size == 0 || ::access((path + "-journal").c_str(), F_OK) == 0) return std::nullopt;
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  if (size < 100 || std::string_view(header.data(), kMagic.size()) != kMagic)
    return StateFileError{path + " is no SQLite database: " + kKeep};
  std::uint32_t application = 0;
  for (std::size_t at = 68; at < 72; ++at)  // sqlite.org/fileformat.html
    application = application << 8 | static_cast<unsigned char>(header[at]);
  if (application != kStateApplicationId)
    return StateFileError{path + " is the database of another program: " + kKeep};
  return std::nullopt;
}

StateFileError failed(const std::string& path, const DatabaseError& error) {
  if (error.code == SQLITE_NOTADB || (error.code & 0xff) == SQLITE_CORRUPT)
    return {path + " is damaged (" + error.text + "): " + kKeep + ", or restore a backup"};
  return {path + " cannot be used: " + error.text};
}

std::optional<StateFileError> check_content(Database& database, const std::string& path) {
  const auto version = database.number("PRAGMA user_version");
  if (!version) return failed(path, version.error());
  if (*version > kStateVersion)
    return StateFileError{path + " has version " + std::to_string(*version) +
                          ", and this musterd knows up to " + std::to_string(kStateVersion) +
                          ": it was written by a newer one. Start that, or " + kKeep};
  const auto sound = database.text("PRAGMA quick_check(1)");
  if (!sound) return failed(path, sound.error());
  if (*sound != "ok") return failed(path, {SQLITE_CORRUPT, *sound});
  return std::nullopt;
}

DatabaseResult<void> begin_to_log(Database& database) {
  for (const char* pragma :
       {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA wal_autocheckpoint = 250",
        "PRAGMA journal_size_limit = 16777216"})
    if (const auto set = database.execute(pragma); !set) return set;
  return {};
}

/// Gives the state an id, unless it has one. An older musterd does not look at this table.
DatabaseResult<void> give_id(Database& database) {
  return database.execute(
      "CREATE TABLE IF NOT EXISTS identity (id TEXT NOT NULL) STRICT; "
      "INSERT INTO identity SELECT lower(hex(randomblob(16))) "
      "WHERE NOT EXISTS (SELECT 1 FROM identity)");
}

}  // namespace

boost::system::result<StateFile, StateFileError> StateFile::open(const std::string& folder) {
  auto lock = lock_folder(folder);
  if (!lock) return lock.error();
  const std::string path = folder + "/" + kStateFile;
  if (auto problem = check_header(path)) return *std::move(problem);
  auto database = Database::open(path);
  if (!database) return failed(path, database.error());
  if (auto problem = check_content(*database, path)) {
    database->disable_checkpoint_on_close();
    return *std::move(problem);
  }
  StateFile file(std::move(*lock), std::move(*database), path);
  if (auto problem = file.load()) {
    file.database_.disable_checkpoint_on_close();
    return *std::move(problem);
  }
  return file;
}

/// Reads everything before the migration is committed, so that a file that cannot be read stays
/// unchanged, also if it is an older one.
std::optional<StateFileError> StateFile::load() {
  auto done = database_.execute("BEGIN IMMEDIATE");
  if (done) done = migrate_state(database_);
  if (done) done = give_id(database_);
  if (!done) return failed(path_, done.error());  // Closing rolls the transaction back.
  auto state = read();
  if (!state) return state.error();
  loaded_ = std::move(*state);
  done = database_.execute("COMMIT");
  if (done) done = begin_to_log(database_);
  if (!done) return failed(path_, done.error());
  return std::nullopt;
}

StateFileError StateFile::unreadable(const std::string& what, const std::string& why) const {
  return {path_ + ": the record of " + printable_text(what) + " cannot be read (" + why +
          "): " + kKeep + ", or restore a backup"};
}

// --- reading -------------------------------------------------------------------------------------

boost::system::result<StoredState, StateFileError> StateFile::read() {
  StoredState state;
  std::optional<StateFileError> problem;
  const auto each = [&](const char* sql, const auto& handle_row) {
    auto rows = database_.prepare(sql);
    if (!rows) {
      problem = failed(path_, rows.error());
      return;
    }
    for (;;) {
      const auto row = rows->step();
      if (!row) problem = failed(path_, row.error());
      if (problem || !*row) return;
      handle_row(*rows);
    }
  };
  each("SELECT run_id, record FROM run ORDER BY run_id", [&](const Statement& row) {
    auto record = decode_run_record(row.text(1));
    if (!record) return void(problem = unreadable("run " + row.text(0), record.error().reason));
    state.runs.push_back({row.text(0), *std::move(record), {}});
  });
  if (!problem)
    each("SELECT id FROM identity", [&](const Statement& row) { state.id = row.text(0); });
  auto run = state.runs.begin();
  if (!problem)
    each("SELECT run_id, record FROM member ORDER BY run_id, addr, pid, local_id",
         [&](const Statement& row) {
           const std::string run_id = row.text(0);
           while (run != state.runs.end() && run->run_id < run_id)
             ++run;
           auto member = decode_member_record(row.text(1));
           if (!member)
             return void(problem = unreadable("a node of run " + run_id, member.error().reason));
           if (run != state.runs.end() && run->run_id == run_id)
             run->members.push_back(*std::move(member));
         });
  if (!problem)
    each("SELECT record FROM ended ORDER BY number", [&](const Statement& row) {
      auto ended = decode_ended_run(row.text(0));
      if (!ended) return void(problem = unreadable("an ended run", ended.error().reason));
      state.ended.push_back(*std::move(ended));
    });
  if (problem) return *std::move(problem);
  return state;
}

// --- writing -------------------------------------------------------------------------------------

DatabaseResult<void> StateFile::write(const StateChanges& changes, std::size_t history) {
  if (const auto begun = database_.execute("BEGIN IMMEDIATE"); !begun) return begun;
  auto done = write_all(changes, history);
  if (done) done = database_.execute("COMMIT");
  // SQLite may already have rolled back by itself: the result is ignored.
  if (!done) (void)database_.execute("ROLLBACK");
  return done;
}

DatabaseResult<void> StateFile::write_all(const StateChanges& changes, std::size_t history) {
  for (const auto& [run_id, run] : changes.runs)
    if (const auto done = write_run(run_id, run); !done) return done;
  if (changes.ended.empty()) return {};
  auto insert = database_.prepare("INSERT INTO ended (record) VALUES (?1)");
  if (!insert) return insert.error();
  for (const EndedRun& ended : changes.ended) {
    insert->bind(1, encode(ended));
    if (const auto done = insert->run(); !done) return done;
  }
  return database_.execute("DELETE FROM ended WHERE number <= (SELECT max(number) FROM ended) - " +
                           std::to_string(history));
}

DatabaseResult<void> StateFile::write_run(const std::string& run_id, const StateChanges::Run& run) {
  if (run.removed)
    for (const char* sql :
         {"DELETE FROM run WHERE run_id = ?1", "DELETE FROM member WHERE run_id = ?1"}) {
      auto statement = database_.prepare(sql);
      if (!statement) return statement.error();
      statement->bind(1, run_id);
      if (const auto done = statement->run(); !done) return done;
    }
  if (!run.record) return {};
  auto statement = database_.prepare("INSERT OR REPLACE INTO run (run_id, record) VALUES (?1, ?2)");
  if (!statement) return statement.error();
  statement->bind(1, run_id);
  statement->bind(2, encode(*run.record));
  if (const auto done = statement->run(); !done) return done;
  return write_members(run_id, run);
}

DatabaseResult<void> StateFile::write_members(const std::string& run_id,
                                              const StateChanges::Run& run) {
  if (run.members.empty()) return {};
  auto insert = database_.prepare(
      "INSERT OR REPLACE INTO member (run_id, addr, pid, local_id, record) "
      "VALUES (?1, ?2, ?3, ?4, ?5)");
  if (!insert) return insert.error();
  auto remove = database_.prepare(
      "DELETE FROM member WHERE run_id = ?1 AND addr = ?2 AND pid = ?3 AND local_id = ?4");
  if (!remove) return remove.error();
  for (const auto& [name, member] : run.members) {
    Statement& statement = member ? *insert : *remove;
    statement.bind(1, run_id);
    statement.bind(2, name.addr);
    statement.bind(3, name.pid);
    statement.bind(4, name.local_id);
    if (member) statement.bind(5, encode(*member));
    if (const auto done = statement.run(); !done) return done;
  }
  return {};
}

}  // namespace muster
