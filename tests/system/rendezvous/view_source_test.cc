#include "rendezvous/http/view_source.h"

#include <chrono>
#include <new>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <catch2/catch.hpp>

#include "base/net/spawn_task.h"
#include "base/system/clock.h"

namespace muster::http::testing {

namespace asio = boost::asio;
using namespace std::chrono_literals;

struct ViewSourceTest {
  struct Taken {
    ViewRequest request;
    std::function<void(SharedView)> done;
  };

  asio::awaitable<void> ask(ViewRequest request) {
    try {
      const SharedView view = co_await source->get(std::move(request));
      answers.push_back(view);
    } catch (const std::bad_alloc&) {
      ++failed;
    }
  }
  void get(const std::string& run) {
    spawn_task(loop.get_executor(), "get", ask({.what = ViewRequest::What::Run, .run = run}));
    loop.poll();
  }
  /// Runs the loop until the condition holds, for a limited time.
  template <typename Condition>
  bool until(Condition condition) {
    for (const Instant end = now() + 20s; !condition() && now() < end;)
      loop.run_one_for(10ms);
    return condition();
  }
  bool until_taken(std::size_t count) {
    return until([&] { return taken.size() >= count; }) && taken.size() == count;
  }
  bool until_answered(std::size_t count) {
    return until([&] { return answers.size() >= count; }) && answers.size() == count;
  }
  void answer(std::size_t index, View view = RunsView{}) {
    taken[index].done(std::make_shared<const View>(std::move(view)));
  }

  asio::io_context loop;
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(loop);
  std::vector<Taken> taken;
  std::vector<SharedView> answers;
  bool has_memory = true;  // If not, no request can be sent to the runs' loop.
  int failed = 0;
  std::shared_ptr<ViewSource> source = std::make_shared<ViewSource>(
      loop, [this](ViewRequest request, std::function<void(SharedView)> done) {
        if (!has_memory) throw std::bad_alloc();
        taken.push_back({std::move(request), std::move(done)});
      });
};

// Asks for a view twice, and again while it is fresh. False: this thread was so late that the view
// may not have been fresh any more.
bool shares_a_view() {
  ViewSourceTest test;
  test.get("a");
  test.get("a");
  REQUIRE(test.taken.size() == 1);
  const Instant before = now();
  test.answer(0);
  REQUIRE(test.until_answered(2));
  CHECK(test.answers[0] == test.answers[1]);
  const Instant fetched = now();
  test.get("a");
  if (now() - before > ViewSource::kFresh) return false;
  CHECK(test.taken.size() == 1);
  CHECK(test.answers.size() == 3);
  REQUIRE(test.until([&] { return now() - fetched > ViewSource::kFresh; }));
  test.get("a");
  CHECK(test.until_taken(2));
  return true;
}

TEST_CASE("view source: a run that was unknown is asked for again at once", "[threads][http]") {
  ViewSourceTest test;
  for (std::size_t turn = 1; turn <= 3; ++turn) {
    test.get("a");
    REQUIRE(test.until_taken(turn));
    test.answer(turn - 1, UnknownRun{});
    REQUIRE(test.until_answered(turn));
  }
}

TEST_CASE("view source: equal requests share one view", "[threads][http]") {
  bool done = false;
  for (int turn = 0; turn < 100 && !done; ++turn)
    done = shares_a_view();
  CHECK(done);
}

TEST_CASE_METHOD(ViewSourceTest, "view source: one view at a time is fetched from the runs' loop",
                 "[threads][http]") {
  get("a");
  get("b");
  get("c");
  REQUIRE(taken.size() == 1);
  loop.run_for(2 * ViewSource::kGap);
  REQUIRE(taken.size() == 1);
  answer(0);
  REQUIRE(until_taken(2));
  CHECK(taken[1].request.run == "b");
  loop.run_for(2 * ViewSource::kGap);
  REQUIRE(taken.size() == 2);
  answer(1);
  REQUIRE(until_taken(3));
  answer(2);
  CHECK(until_answered(3));
}

TEST_CASE_METHOD(ViewSourceTest,
                 "view source: views are fetched again after one that ran out of memory",
                 "[threads][http]") {
  has_memory = false;
  get("a");
  CHECK(failed == 1);
  has_memory = true;
  get("a");
  REQUIRE(taken.size() == 1);
  answer(0);
  CHECK(until_answered(1));
}

TEST_CASE_METHOD(ViewSourceTest, "view source: a loop that does not answer is reported",
                 "[threads][http]") {
  get("a");
  REQUIRE(until_answered(1));
  CHECK(answers[0] == nullptr);
  answer(0);  // Too late: no request waits.
  get("b");
  CHECK(until_taken(2));
  CHECK(answers.size() == 1);
}

TEST_CASE_METHOD(ViewSourceTest, "view source: views are fetched again after an answer was lost",
                 "[threads][http]") {
  get("a");
  get("b");
  REQUIRE(until_answered(2));  // Both with null, and no answer to "a" will come.
  get("b");
  REQUIRE(until_taken(2));
  CHECK(taken[1].request.run == "b");
  answer(1);
  REQUIRE(until_answered(3));
  CHECK(answers[2] != nullptr);
  get("a");
  CHECK(until_taken(3));
}

}  // namespace muster::http::testing
