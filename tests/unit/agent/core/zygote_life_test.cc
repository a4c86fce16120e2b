#include "agent/core/zygote_life.h"

#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace muster {
namespace {

using namespace std::chrono_literals;

std::string text(const ZygoteAction& action) {
  if (std::holds_alternative<LaunchZygote>(action)) return "launch";
  if (std::holds_alternative<KillZygote>(action)) return "kill";
  if (const auto* fork = std::get_if<ForkWorker>(&action))
    return "fork " + std::to_string(fork->worker);
  if (const auto* lost = std::get_if<ReportLostZygote>(&action))
    return (lost->is_replaced ? "replaced: " : "lost: ") + lost->reason;
  const auto& cold = std::get<StartCold>(action);
  return "cold " + std::to_string(cold.worker) + (cold.reason.empty() ? "" : ": " + cold.reason);
}

using Texts = std::vector<std::string>;

struct ZygoteLifeTest {
  ZygoteLife life;
  Instant now{};

  Texts after(Duration elapsed, const ZygoteEvent& event) {
    Texts texts;
    for (const ZygoteAction& action : life.step(event, now += elapsed))
      texts.push_back(text(action));
    return texts;
  }
  Texts is(const ZygoteEvent& event) { return after(0s, event); }
  void become_ready() {
    is(WarmStartAsked{0});
    is(ImportsDone{});
    is(ForkDone{0});
  }
};

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: the first workers wait for its imports",
                 "[unit][agent]") {
  CHECK(is(WarmStartAsked{0}) == Texts{"launch"});
  CHECK(is(WarmStartAsked{1}).empty());
  CHECK(life.has_waiting());
  CHECK(life.next_deadline() == now + ZygoteLife::kImportLimit);
  CHECK(after(4s, ImportsDone{}) == Texts{"fork 0", "fork 1"});
  CHECK(life.next_deadline() == now + ZygoteLife::kForkLimit);
  CHECK(is(ForkDone{1}).empty());
  CHECK(life.has_waiting());
  CHECK(is(ForkDone{0}).empty());
  CHECK_FALSE(life.has_waiting());
  CHECK_FALSE(life.next_deadline());
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: a ready one forks at once", "[unit][agent]") {
  become_ready();
  CHECK(is(WarmStartAsked{0}) == Texts{"fork 0"});
  CHECK(after(1s, WarmStartAsked{1}) == Texts{"fork 1"});
  CHECK(life.next_deadline() == now + 4s);  // The oldest request decides.
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: imports without end cost a cold start", "[unit][agent]") {
  is(WarmStartAsked{0});
  CHECK(after(299s, ZygoteTimePassed{}).empty());
  CHECK(after(1s, ZygoteTimePassed{}) ==
        Texts{"cold 0: the imports have taken more than 300 seconds", "kill"});
  CHECK(is(WarmStartAsked{0}) == Texts{"cold 0: the imports have taken more than 300 seconds"});
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: one that refuses is not made again", "[unit][agent]") {
  is(WarmStartAsked{0});
  is(WarmStartAsked{1});
  CHECK(is(ZygoteRefused{.reason = "x has started a thread"}) ==
        Texts{"cold 0: x has started a thread", "cold 1: x has started a thread", "kill"});
  CHECK(life.state() == ZygoteLife::State::Refused);
  CHECK(is(ZygoteEnded{"was killed"}).empty());
  CHECK(is(ImportsDone{}).empty());
  CHECK(is(WarmStartAsked{1}) == Texts{"cold 1: x has started a thread"});
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: a stale one is made anew, beside a cold start",
                 "[unit][agent]") {
  become_ready();
  is(WarmStartAsked{0});
  is(WarmStartAsked{1});
  is(ForkDone{0});
  CHECK(is(ZygoteRefused{.reason = "HF_HOME has changed", .is_stale = true}) ==
        Texts{"cold 1: HF_HOME has changed", "kill", "launch"});
  CHECK(is(WarmStartAsked{1}) == Texts{"cold 1: the new zygote has not done its imports yet"});
  CHECK(is(ImportsDone{}).empty());
  CHECK(is(WarmStartAsked{1}) == Texts{"fork 1"});
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: its end while it imports is final", "[unit][agent]") {
  is(WarmStartAsked{0});
  CHECK(is(ZygoteEnded{"was killed by signal 9"}) ==
        Texts{"cold 0: the zygote was killed by signal 9 while it imported", "kill"});
  CHECK(life.state() == ZygoteLife::State::Refused);
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: one that ends is made anew", "[unit][agent]") {
  become_ready();
  CHECK(is(ZygoteEnded{"was killed by signal 9"}) ==
        Texts{"replaced: the zygote was killed by signal 9", "kill", "launch"});
  is(ImportsDone{});
  is(WarmStartAsked{0});
  CHECK(is(ZygoteEnded{"was killed by signal 9"}) ==
        Texts{"cold 0: the zygote was killed by signal 9", "kill", "launch"});
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: one that hangs is killed", "[unit][agent]") {
  become_ready();
  is(WarmStartAsked{0});
  CHECK(after(4999ms, ZygoteTimePassed{}).empty());
  CHECK(after(1ms, ZygoteTimePassed{}) ==
        Texts{"cold 0: the zygote has not answered within 5 seconds", "kill", "launch"});
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: a fork that ends too early starts cold",
                 "[unit][agent]") {
  become_ready();
  is(WarmStartAsked{0});
  CHECK(is(ForkFailed{0}) ==
        Texts{"cold 0: a fork of the zygote has ended too early", "kill", "launch"});
  CHECK(is(ForkFailed{0}).empty());  // Its start has been answered.
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: three in a row without a worker are the last",
                 "[unit][agent]") {
  become_ready();
  for (int i = 0; i < 2; ++i) {
    CHECK(is(ZygoteEnded{"ended"}) == Texts{"replaced: the zygote ended", "kill", "launch"});
    is(ImportsDone{});
  }
  CHECK(is(ZygoteEnded{"ended"}) == Texts{"lost: the zygote ended", "kill"});
  CHECK(is(WarmStartAsked{0}) == Texts{"cold 0: the zygote ended"});
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: a worker of a new one makes the count begin again",
                 "[unit][agent]") {
  for (int i = 0; i < 10; ++i) {
    become_ready();
    CHECK(is(ZygoteEnded{"ended"}) == Texts{"replaced: the zygote ended", "kill", "launch"});
    is(ImportsDone{});
  }
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: one whose memory grows is made anew", "[unit][agent]") {
  constexpr std::uint64_t kMiB = 1 << 20;
  is(WarmStartAsked{0});
  is(ImportsDone{});
  is(ForkDone{0});
  CHECK(is(ZygoteMeasured{300 * kMiB}).empty());
  CHECK(is(ZygoteMeasured{664 * kMiB}).empty());
  is(WarmStartAsked{0});
  CHECK(is(ZygoteMeasured{700 * kMiB}).empty());  // Not while a start waits.
  is(ForkDone{0});
  CHECK(is(ZygoteMeasured{665 * kMiB}) ==
        Texts{"replaced: the memory of the zygote has grown from 300 MiB to 665 MiB", "kill",
              "launch"});
  CHECK(is(ZygoteMeasured{900 * kMiB}).empty());  // Of the one that was killed.
  is(ImportsDone{});
  CHECK(is(ZygoteMeasured{900 * kMiB}).empty());  // The new one is compared with itself.
}

TEST_CASE_METHOD(ZygoteLifeTest, "zygote: no start waits once the job stops", "[unit][agent]") {
  is(WarmStartAsked{0});
  CHECK(is(WarmStartsAborted{}) == Texts{"cold 0"});
  CHECK(life.next_deadline());  // The imports go on, with their limit.
  CHECK(is(ImportsDone{}).empty());
  is(WarmStartAsked{1});
  CHECK(is(WarmStartsAborted{}) == Texts{"cold 1"});
  CHECK_FALSE(life.next_deadline());
}

}  // namespace
}  // namespace muster
