#include "agent/core/hang_detector.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

struct HangDetectorTest {
  HangDetector detector{30s};
  Instant now{};
  WorkerActivity a{.rank = LocalRank{0}};
  WorkerActivity b{.rank = LocalRank{1}};

  std::vector<IdleWorker> after(Duration elapsed) {
    return detector.observe({a, b}, now += elapsed);
  }
  /// Observes at the detector's interval for `elapsed`.
  std::vector<IdleWorker> watch(Duration elapsed) {
    std::vector<IdleWorker> last;
    for (Duration passed{}; passed < elapsed; passed += detector.interval())
      last = after(detector.interval());
    return last;
  }
};

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: a worker that is idle for the timeout hangs",
                 "[unit][hang]") {
  CHECK(detector.interval() == 3s);
  CHECK(after(0s).empty());
  CHECK(watch(27s).empty());
  const auto idle = after(3s);
  REQUIRE(idle.size() == 2);
  CHECK(idle[0].rank == LocalRank{0});
  CHECK(idle[0].idle == 30s);
}

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: one written byte is a sign of life",
                 "[unit][hang]") {
  after(0s);
  for (int i = 0; i < 20; ++i) {
    CHECK(watch(27s).empty());
    ++a.bytes_written;
    ++b.bytes_written;
    CHECK(after(3s).empty());
  }
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: time does not count while a full console keeps all from writing",
                 "[unit][hang]") {
  after(0s);
  CHECK(watch(27s).empty());
  for (int i = 0; i < 100; ++i)
    CHECK(detector.observe({a, b}, now += 3s, true).empty());
  CHECK(after(3s).size() == 2);
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: a worker hangs although another one keeps the console full",
                 "[unit][hang]") {
  after(0s);
  for (int i = 0; i < 9; ++i) {
    ++b.bytes_written;
    CHECK(detector.observe({a, b}, now += 3s, true).empty());
  }
  ++b.bytes_written;
  const auto idle = detector.observe({a, b}, now += 3s, true);
  REQUIRE(idle.size() == 1);
  CHECK(idle[0].rank == LocalRank{0});
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: a worker that cannot be read keeps its last sample",
                 "[unit][hang]") {
  a.cpu = b.cpu = 60s;
  after(0s);
  const WorkerActivity whole = a;
  for (int i = 0; i < 9; ++i) {
    CHECK(after(3s).empty());
    a = i % 2 == 0 ? WorkerActivity{.rank = LocalRank{0}, .complete = false} : whole;
  }
  CHECK(after(3s).size() == 2);
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: a worker that has promised progress must report it",
                 "[unit][hang]") {
  const auto spin = [this](Duration elapsed) {
    std::vector<IdleWorker> last;
    for (Duration passed{}; passed < elapsed; passed += detector.interval()) {
      a.cpu += detector.interval();
      ++a.bytes_written;
      ++b.bytes_written;
      last = after(detector.interval());
    }
    return last;
  };
  after(0s);
  CHECK(spin(60s).empty());  // No promise was made.
  detector.progressed(LocalRank{0});
  CHECK(spin(27s).empty());
  detector.progressed(LocalRank{0});
  CHECK(spin(27s).empty());
  const auto idle = spin(3s);
  REQUIRE(idle.size() == 1);
  CHECK(idle[0].rank == LocalRank{0});
  CHECK(idle[0].idle == 30s);
  CHECK(idle[0].has_promised);
  detector.ended_progress(LocalRank{0});
  CHECK(spin(60s).empty());
  detector.progressed(LocalRank{0});
  detector.reset();
  after(0s);
  CHECK(spin(60s).empty());
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: a stopped worker need not keep its promise of progress",
                 "[unit][hang]") {
  after(0s);
  detector.progressed(LocalRank{0});
  a.stopped = b.stopped = true;
  CHECK(watch(60s).empty());
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: up to one percent of a CPU is idle, more is activity",
                 "[unit][hang]") {
  after(0s);
  for (Duration passed{}; passed < 60s; passed += 3s) {
    a.cpu += 30ms;  // As used by threads that wake up now and then.
    b.cpu += 300ms;
    const auto idle = after(3s);
    if (passed < 27s) CHECK(idle.empty());
    if (passed >= 27s && passed < 30s) {
      REQUIRE(idle.size() == 1);
      CHECK(idle[0].rank == LocalRank{0});
    }
  }
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: other idle workers are returned, too, the longest idle first",
                 "[unit][hang]") {
  after(0s);
  for (int i = 0; i < 4; ++i) {
    ++a.bytes_written;
    after(3s);
  }
  const auto idle = watch(18s);
  REQUIRE(idle.size() == 2);
  CHECK(idle[0].rank == LocalRank{1});
  CHECK(idle[0].idle == 30s);
  CHECK(idle[1].rank == LocalRank{0});
  CHECK(idle[1].idle == 18s);
}

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: a descendant's end is a sign of life",
                 "[unit][hang]") {
  a.cpu = b.cpu = 5s;
  after(0s);
  watch(27s);
  a.cpu = b.cpu = 4s;
  CHECK(after(3s).empty());
}

TEST_CASE_METHOD(HangDetectorTest,
                 "hang_detector: a worker that has answered a notice waits, and does not hang",
                 "[unit][hang]") {
  after(0s);
  detector.progressed(LocalRank{0});
  detector.saved(LocalRank{0});
  const auto idle = watch(33s);  // The other worker still does.
  REQUIRE(idle.size() == 1);
  CHECK(idle[0].rank == LocalRank{1});
  detector.reset();
  after(3s);
  CHECK(watch(30s).size() == 2);
}

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: a stopped worker does not hang",
                 "[unit][hang]") {
  a.stopped = b.stopped = true;
  after(0s);
  CHECK(watch(300s).empty());
  a.stopped = b.stopped = false;
  CHECK(watch(27s).empty());
  CHECK(after(3s).size() == 2);
}

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: time without checks does not count",
                 "[unit][hang]") {
  after(0s);
  CHECK(after(8h).empty());
  CHECK(watch(21s).empty());
  CHECK(after(3s).size() == 2);  // Two intervals of the gap were counted.
}

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: after a reset everything begins anew",
                 "[unit][hang]") {
  after(0s);
  watch(27s);
  detector.reset();
  CHECK(after(3s).empty());
  CHECK(watch(27s).empty());
  CHECK(after(3s).size() == 2);
}

TEST_CASE_METHOD(HangDetectorTest, "hang_detector: a worker that is gone is forgotten",
                 "[unit][hang]") {
  after(0s);
  watch(27s);
  const auto idle = detector.observe({b}, now += 3s);
  REQUIRE(idle.size() == 1);
  CHECK(idle[0].rank == LocalRank{1});
}

TEST_CASE("hang_detector: the interval of the checks has bounds", "[unit][hang]") {
  CHECK(HangDetector(1ms).interval() == 20ms);
  CHECK(HangDetector(1s).interval() == 100ms);
  CHECK(HangDetector(24h).interval() == 10s);
}

}  // namespace
}  // namespace muster
