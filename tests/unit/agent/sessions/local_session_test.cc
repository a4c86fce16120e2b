// The notice of a session without other nodes: which workers are told, and how the job ends.

#include "agent/sessions/local_session.h"

#include <vector>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "base/system/clock.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

struct OneNode {
  RendezvousSession::Handlers handlers() {
    return {.on_round = [this](const SessionRound&) { log.emplace_back("round"); },
            .on_restart = [this](const SessionRestart&) { log.emplace_back("restart"); },
            .on_end =
                [this](const SessionEnd& end) {
                  log.push_back(end.preempted ? "preempted: " + end.why : "ended");
                },
            .on_notice =
                [this](const JobNotice& notice) {
                  log.push_back("notice: " + notice.reason);
                  last = notice;
                },
            .on_failed = [this](const std::string& why) { log.push_back("failed " + why); },
            .host_store = [](const auto& done) { done(HostedStore{29500}); }};
  }
  using Log = std::vector<std::string>;

  boost::asio::io_context loop;
  Log log;
  JobNotice last;
  LocalSession session{loop.get_executor(), handlers(), 3, "127.0.0.1"};
};

TEST_CASE_METHOD(OneNode, "local session: a notice goes to all workers, and saved() ends the job",
                 "[unit][agent]") {
  session.join();
  session.notify({1h, "spot"});
  CHECK(log == Log{"round", "notice: spot"});
  CHECK(last.doomed_ranks == std::vector<std::pair<int, int>>{{0, 2}});
  CHECK(last.this_node);
  CHECK(last.stops);
  session.saved();
  CHECK(log.back() == "preempted: this node will go (spot)");
  CHECK(loop.run() == 1);  // The timer, which is cancelled. The end is told once.
  CHECK(log.size() == 3);
}

TEST_CASE_METHOD(OneNode, "local session: at the deadline of the notice the job ends",
                 "[unit][agent]") {
  session.join();
  session.notify({1h, "later"});
  session.notify({1ms, "sooner"});
  session.notify({2h, "much later"});
  CHECK(log == Log{"round", "notice: later", "notice: sooner"});
  loop.run();
  CHECK(now() >= last.deadline);
  CHECK(log.back() == "preempted: this node will go (sooner)");
}

TEST_CASE_METHOD(OneNode, "local session: a notice before the round, and a restart",
                 "[unit][agent]") {
  session.notify({1h, "spot"});
  session.join();
  session.workers_failed({"rank 0 exited with 1"});
  session.join();
  CHECK(log == Log{"round", "notice: spot", "round", "notice: spot"});
}

TEST_CASE_METHOD(OneNode, "local session: a job that has finished does not wait for its notice",
                 "[unit][agent]") {
  session.join();
  session.notify({1ms, "spot"});
  session.finished(true, {});
  loop.run();
  CHECK(log == Log{"round", "notice: spot", "ended"});
}

}  // namespace
}  // namespace muster
