#include "rendezvous/http/view_source.h"

#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <catch2/catch.hpp>

#include "rendezvous/net/spawn_task.h"

namespace muster::http::testing {

namespace asio = boost::asio;

struct ViewSourceTest {
  struct Taken {
    ViewRequest request;
    std::function<void(SharedView)> done;
  };

  asio::awaitable<void> ask(ViewRequest request) {
    const SharedView view = co_await source->get(std::move(request));
    answers.push_back(view);
  }
  void get(const std::string& run) {
    spawn_task(loop.get_executor(), "get", ask({.what = ViewRequest::What::Run, .run = run}));
    loop.poll();
  }
  void pass(Duration time) { loop.run_for(time); }
  void answer(std::size_t index) {
    taken[index].done(std::make_shared<const View>(UnknownRun{}));
    pass(2 * ViewSource::kGap);
  }

  asio::io_context loop;
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(loop);
  std::vector<Taken> taken;
  std::vector<SharedView> answers;
  std::shared_ptr<ViewSource> source = std::make_shared<ViewSource>(
      loop, [this](ViewRequest request, std::function<void(SharedView)> done) {
        taken.push_back({std::move(request), std::move(done)});
      });
};

TEST_CASE_METHOD(ViewSourceTest, "view source: those who ask for the same share one view",
                 "[threads][http]") {
  get("a");
  get("a");
  REQUIRE(taken.size() == 1);
  answer(0);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0] == answers[1]);
  get("a");  // The view is still fresh.
  CHECK(taken.size() == 1);
  CHECK(answers.size() == 3);
  pass(ViewSource::kFresh + ViewSource::kGap);
  get("a");
  CHECK(taken.size() == 2);
  answer(1);
}

TEST_CASE_METHOD(ViewSourceTest, "view source: one view at a time is taken from the runs' loop",
                 "[threads][http]") {
  get("a");
  get("b");
  get("c");
  REQUIRE(taken.size() == 1);
  answer(0);
  REQUIRE(taken.size() == 2);
  CHECK(taken[1].request.run == "b");
  answer(1);
  answer(2);
  CHECK(answers.size() == 3);
}

TEST_CASE_METHOD(ViewSourceTest, "view source: a loop that does not answer is told as such",
                 "[threads][http]") {
  get("a");
  pass(ViewSource::kAnswerWithin + std::chrono::milliseconds(500));
  REQUIRE(answers.size() == 1);
  CHECK(answers[0] == nullptr);
  taken[0].done(std::make_shared<const View>(UnknownRun{}));  // Too late: no request waits.
  pass(2 * ViewSource::kGap);
  get("b");
  CHECK(taken.size() == 2);
}

}  // namespace muster::http::testing
