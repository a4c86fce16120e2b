#include "agent/core/worker_table.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace muster {
namespace {

// Records each notification, with the content of the table at that moment.
struct Notes : WorkerObserver {
  Notes(const WorkerTable& of, std::string own_name) : table(of), name(std::move(own_name)) {}
  void attempt_begins() override { note("begins"); }
  void worker_started(const RunningWorker& worker) override {
    note("started " + std::to_string(worker.rank.value) + " " + std::to_string(worker.pid));
  }
  void worker_ended(const RunningWorker& worker, const WorkerExit& exit) override {
    note("ended " + std::to_string(worker.pid) + " with " + std::to_string(exit.status));
  }
  void attempt_ends() override { note("ends"); }
  void note(const std::string& what) {
    lines.push_back(name + ": " + what + ", " + std::to_string(table.running().size()) + " run");
  }
  const WorkerTable& table;
  std::string name;
  std::vector<std::string> lines;
};

TEST_CASE("worker table: observers see the table as it is after the change",
          "[unit][worker_table]") {
  WorkerTable table;
  Notes notes(table, "a");
  table.observe(notes);
  table.attempt_begins();
  table.started(LocalRank{1}, 101);
  table.started(LocalRank{0}, 100);
  CHECK(table.pid_of(LocalRank{1}) == 101);
  CHECK(table.pids() == std::set<int>{100, 101});
  table.attempt_ends();
  table.ended(LocalRank{1}, {.status = 3});
  CHECK(table.pid_of(LocalRank{1}) == 0);
  CHECK(notes.lines == std::vector<std::string>{"a: begins, 0 run", "a: started 1 101, 1 run",
                                                "a: started 0 100, 2 run", "a: ends, 2 run",
                                                "a: ended 101 with 3, 1 run"});
}

TEST_CASE("worker table: the end of a worker that did not run is not reported",
          "[unit][worker_table]") {
  WorkerTable table;
  Notes notes(table, "a");
  table.observe(notes);
  table.ended(LocalRank{0}, {});
  table.started(LocalRank{0}, 100);
  table.ended(LocalRank{0}, {});
  table.ended(LocalRank{0}, {});
  CHECK(notes.lines.size() == 2);
}

TEST_CASE("worker table: a new attempt begins without workers", "[unit][worker_table]") {
  WorkerTable table;
  table.started(LocalRank{0}, 100);
  Notes notes(table, "late");
  table.observe(notes);
  table.attempt_begins();
  CHECK(table.running().empty());
  CHECK(notes.lines == std::vector<std::string>{"late: begins, 0 run"});
}

}  // namespace
}  // namespace muster
