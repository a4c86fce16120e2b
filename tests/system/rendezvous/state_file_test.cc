// The state file: written state is read again, also if writes fail and the process is killed.

#include "rendezvous/state/sqlite/state_file.h"

#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"
#include "tests/system/rendezvous/faulty_files.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::size_t kHistory = 3;

/// The changes of a turn in which `nodes` nodes are in round `round`.
StateChanges turn_of(std::int64_t round, int nodes = 3) {
  StateChanges changes{.number = static_cast<std::uint64_t>(round)};
  RunChange change{.record = {.life = 1, .round = round, .generation = round, .had_round = true}};
  for (int i = 0; i < nodes; ++i)
    change.members.push_back({.name = {"node" + std::to_string(i), i, 0},
                              .rank = static_cast<int>((i + round) % nodes)});
  changes.add("job", std::move(change));
  changes.ended.push_back({.run_id = "before " + std::to_string(round)});
  return changes;
}

StoredState content_of(const fs::path& folder) {
  auto file = StateFile::open(folder);
  if (!file) FAIL(file.error().reason);
  return file->take_loaded();
}

/// The stored round. 0: none. Fails if the rest of the state does not match it.
std::int64_t round_in(const fs::path& folder) {
  const StoredState state = content_of(folder);
  if (state.runs.empty()) return 0;
  const StoredRun& run = state.runs.front();
  REQUIRE(run.members.size() == 3);
  for (const MemberRecord& member : run.members)
    REQUIRE(*member.rank == (member.name.pid + run.record.round) % 3);
  REQUIRE(state.ended.back().run_id == "before " + std::to_string(run.record.round));
  return run.record.round;
}

TEST_CASE("state file: the state keeps its id, and another one has another",
          "[conformance][state]") {
  const TempFolder here;
  const std::string id = content_of(here.dir / "one").id;
  CHECK(id.size() == 32);
  CHECK(content_of(here.dir / "one").id == id);
  CHECK(content_of(here.dir / "two").id != id);
}

/// A copy of the files that a process leaves behind if it is killed now.
fs::path killed(const fs::path& folder, const fs::path& copy) {
  fs::remove_all(copy);
  fs::create_directory(copy);
  for (const char* name : {"musterd.db", "musterd.db-wal", "musterd.db-journal"})
    if (fs::exists(folder / name)) fs::copy(folder / name, copy / name);
  return copy;
}

TEST_CASE("state file: written state is read again", "[conformance][state]") {
  FaultyFiles::install().heal();
  const TempFolder folder;
  const fs::path path = folder.dir / "state";
  {
    auto file = StateFile::open(path);
    REQUIRE(file.has_value());
    CHECK(file->take_loaded().runs.empty());
    for (std::int64_t round = 1; round <= 5; ++round)
      REQUIRE(file->write(turn_of(round), kHistory).has_value());
    StateChanges more{.number = 6};
    more.add("other", {RunRecord{.round = 8}, {{.name = {"x", 1, 0}, .rank = 0}}, {}});
    more.add("job", {RunRecord{.round = 6}, {}, {{"node2", 2, 0}}});
    REQUIRE(file->write(more, kHistory).has_value());
  }
  StoredState state = content_of(path);
  REQUIRE(state.runs.size() == 2);
  CHECK(state.runs[0].run_id == "job");
  CHECK(state.runs[0].record.round == 6);
  CHECK(state.runs[0].members.size() == 2);
  CHECK(state.runs[1].members.size() == 1);
  REQUIRE(state.ended.size() == kHistory);
  CHECK(state.ended.front().run_id == "before 3");
  {
    auto file = StateFile::open(path);
    REQUIRE(file.has_value());
    StateChanges gone{.number = 1};
    gone.remove("job");
    REQUIRE(file->write(gone, kHistory).has_value());
  }
  state = content_of(path);
  REQUIRE(state.runs.size() == 1);
  CHECK(state.runs[0].members.size() == 1);
}

TEST_CASE("state file: the write-ahead log stays small", "[conformance][state]") {
  FaultyFiles::install().heal();
  const TempFolder folder;
  auto file = StateFile::open(folder.dir);
  REQUIRE(file.has_value());
  for (std::int64_t round = 1; round <= 500; ++round)
    REQUIRE(file->write(turn_of(round), kHistory).has_value());
  CHECK(fs::file_size(folder.dir / "musterd.db-wal") < 4'000'000);
}

/// The `nth` write, sync or truncation fails, and `more` after it. Then the disk works again. A
/// process that is killed at any step leaves the acknowledged turns, and possibly the newest turn.
/// Returns whether all failures happened.
bool survives(int nth, int more, int code) {
  INFO("failing operation " << nth << " and " << more << " more with " << code);
  FaultyFiles& disk = FaultyFiles::install();
  disk.heal();
  const TempFolder folder;
  const fs::path path = folder.dir / "state";
  const fs::path copy = folder.dir / "copy";
  std::int64_t acknowledged = 0;
  auto file = StateFile::open(path);
  REQUIRE(file.has_value());
  disk.fail(nth, more, code);
  for (std::int64_t round = 1; round <= 12; ++round) {
    const bool done = file->write(turn_of(round), kHistory).has_value();
    if (done) acknowledged = round;
    const bool spent = disk.spent();
    if (!done || round % 4 == 0) {
      disk.heal();
      const std::int64_t left = round_in(killed(path, copy));
      REQUIRE(left >= acknowledged);
      REQUIRE(left <= round);
      if (!spent) disk.fail(1, 0, code);
    }
  }
  const bool reached = disk.spent();
  disk.heal();
  REQUIRE(file->write(turn_of(13), kHistory).has_value());
  file = StateFileError{"closed"};
  REQUIRE(round_in(path) == 13);
  return reached;
}

TEST_CASE("state file: no acknowledged state is lost, whichever write fails",
          "[conformance][state]") {
  for (const int code : {SQLITE_FULL, SQLITE_IOERR_WRITE})
    for (const int more : {0, 3})
      for (int nth = 1; nth <= 60; nth += more == 0 && code == SQLITE_FULL ? 1 : 4)
        (void)survives(nth, more, code);
  CHECK(survives(1, 0, SQLITE_FULL));  // Checks that the failures really happen.
  CHECK(survives(20, 0, SQLITE_FULL));
}

TEST_CASE("state file: a second process is refused while the first one uses the folder",
          "[conformance][state]") {
  FaultyFiles::install().heal();
  const TempFolder folder;
  auto first = StateFile::open(folder.dir);
  REQUIRE(first.has_value());
  const auto second = StateFile::open(folder.dir);
  REQUIRE_FALSE(second.has_value());
  CHECK_THAT(second.error().reason, Catch::Contains("another musterd"));
  first = StateFileError{"closed"};
  CHECK(StateFile::open(folder.dir).has_value());
}

// --- the storage thread --------------------------------------------------------------------------

/// The newest report, which any thread may bring.
class Reports {
 public:
  void listen(RunState& state) {
    state.listen([this](const StateReport& report) {
      const std::lock_guard lock(mutex_);
      newest_ = report;
      problems_ += report.problem.empty() ? 0 : 1;
      changed_.notify_all();
    });
  }
  StateReport wait_until_durable(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 30s, [&] { return newest_.durable >= number; }));
    return newest_;
  }
  void wait_for_problem() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 30s, [&] { return problems_ > 0; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StateReport newest_;
  int problems_ = 0;
};

TEST_CASE("sqlite state: a failing disk is reported and tried again, and then has all changes",
          "[conformance][state]") {
  FaultyFiles& disk = FaultyFiles::install();
  disk.heal();
  const TempFolder folder;
  Reports reports;
  {
    auto state = open_sqlite_state({.folder = folder.dir, .history = kHistory});
    REQUIRE(state.has_value());
    reports.listen(**state);
    (*state)->record(turn_of(1));
    CHECK(reports.wait_until_durable(1).problem.empty());
    disk.fail(1, 0, SQLITE_FULL);
    (*state)->record(turn_of(2));
    reports.wait_for_problem();
    (*state)->record(turn_of(3));
    CHECK(reports.wait_until_durable(3).problem.empty());
    (*state)->record(turn_of(4));  // The destructor writes it.
  }
  CHECK(round_in(folder.dir) == 4);
}

/// The memory of this process that is in use, in MiB.
std::int64_t resident_mib() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE) >> 20;
}

TEST_CASE("sqlite state: changes that come while a write hangs are kept once",
          "[conformance][state]") {
  constexpr int kTurns = 600;
  FaultyFiles::install().heal();
  const TempFolder folder;
  std::promise<void> begun;
  std::promise<void> goes_on;
  {
    auto state = open_sqlite_state({.folder = folder.dir, .history = kHistory});
    REQUIRE(state.has_value());
    (*state)->listen([&, is_first = true](const StateReport&) mutable {  // As a write that hangs.
      if (!std::exchange(is_first, false)) return;
      begun.set_value();
      goes_on.get_future().wait_for(60s);
    });
    (*state)->record(turn_of(1));
    REQUIRE(begun.get_future().wait_for(30s) == std::future_status::ready);
    const std::int64_t before = resident_mib();
    for (int i = 2; i <= kTurns; ++i) {
      StateChanges changes = turn_of(i);
      changes.runs.at("job").record->restart_what.assign(std::size_t{1} << 20, 'x');
      (*state)->record(std::move(changes));
    }
    CHECK(resident_mib() - before < kTurns * 2 / 3);  // A sanitizer keeps 256 MiB of freed memory.
    goes_on.set_value();
  }
  CHECK(round_in(folder.dir) == kTurns);
}

}  // namespace
}  // namespace muster::testing
