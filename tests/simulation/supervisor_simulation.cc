// The supervisor with a simulated shim and simulated workers: starts that fail or hang; workers
// that fail, end slowly, ignore SIGTERM or leave children; signals at any moment; reports that come
// late. The invariants are checked at every step. MUSTER_SEED=<seed> runs one seed again.

#include <deque>
#include <map>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "agent/core/supervisor.h"
#include "tests/support/prng.h"
#include "tests/support/seeds.h"
#include "tests/support/trace.h"

namespace muster {
namespace {
using namespace std::chrono_literals;

Duration ms(std::uint64_t n) {
  return std::chrono::milliseconds(n);
}

// The behaviour of one worker, drawn when it starts.
struct Worker {
  Instant ends_at;
  WorkerExit end;
  bool ignores_signals = false;
  Duration takes_to_end{};  // How long the worker takes to end after a signal.
};

class World {
 public:
  explicit World(std::uint64_t seed)
      : prng_(seed),
        settings_{.local_world_size = 1 + static_cast<int>(prng_.below(5)),
                  .max_restarts = static_cast<int>(prng_.below(4)),
                  .stop_timeout = ms(prng_.below(40'000))},
        // Some faults are off in some runs: with all faults on, the effect of each one is hidden.
        failing_(prng_.chance(70)),
        signalling_(prng_.chance(40)),
        start_failing_(prng_.chance(15)),
        start_hanging_(prng_.chance(15)),
        stubborn_(prng_.chance(50)),
        hanging_(prng_.chance(30)),
        has_peers_(prng_.chance(40)),
        job_decides_(has_peers_ && prng_.chance(60)),
        supervisor_(settings_) {}

  void run() {
    apply(JoinRendezvous{});
    int steps = 0;
    while (!supervisor_.finished()) {
      REQUIRE(++steps < 2000);
      advance();
    }
    check_end();
  }

 private:
  void feed(const SupervisorEvent& event) {
    for (const SupervisorAction& action : supervisor_.step(event, now_))
      std::visit(
          [this](const auto& a) {
            testing::Trace::now().add(now_.time_since_epoch().count());
            trace(a);
            apply(a);
          },
          action);
    // Workers are stopped at once, also if a start is not answered yet.
    if (ends_attempt(event)) REQUIRE_FALSE(has_workers());
  }

  static void trace(std::string_view action, std::int64_t number = 0, std::string_view text = {}) {
    testing::Trace::now().add(action);
    testing::Trace::now().add(number);
    testing::Trace::now().add(text);
  }
  static void trace(const JoinRendezvous&) { trace("join"); }
  static void trace(const StartWorkers& action) { trace("start", action.restart_count); }
  static void trace(const SignalWorkers& action) { trace("signal", action.number); }
  static void trace(const EndWorker& action) {
    trace("end", action.number, std::to_string(action.rank.value));
  }
  static void trace(const KillEverything& action) {
    trace("kill", (action.times.until_sigterm + action.times.until_sigkill).count());
  }
  static void trace(const AnnounceFailure& action) {
    trace("failure", action.restarts_left, std::to_string(action.rank.value));
  }
  static void trace(const ReportEnd& action) { trace("report", action.succeeded ? 1 : 0); }
  static void trace(const LeaveRendezvous&) { trace("leave"); }
  static void trace(const Finish& action) {
    trace("finish", static_cast<std::int64_t>(action.why), action.reason);
  }

  bool has_workers() const {
    return supervisor_.state() == Supervisor::State::Starting ||
           supervisor_.state() == Supervisor::State::Running;
  }

  static bool ends_attempt(const SupervisorEvent& event) {
    if (const auto* ended = std::get_if<JobEnded>(&event)) return !ended->succeeded;
    if (const auto* ended = std::get_if<WorkerEnded>(&event)) return !ended->exit.ok();
    return std::holds_alternative<RestartOrdered>(event) ||
           std::holds_alternative<WorkerStartFailed>(event);
  }

  // Runs the next event: a due report, the end of a worker, a signal, or the deadline.
  void advance() {
    Instant next = Instant::max();
    if (!reports_.empty()) next = std::min(next, reports_.front().first);
    for (const auto& [rank, worker] : alive_)
      next = std::min(next, worker.ends_at);
    for (const auto& [rank, starts_at] : hanging_starts_)
      next = std::min(next, starts_at);
    if (const auto deadline = supervisor_.next_deadline()) next = std::min(next, *deadline);
    if (gone_at_) next = std::min(next, *gone_at_);
    if (joining_until_) next = std::min(next, *joining_until_);
    if (signalling_ && prng_.chance(10)) {
      ++signals_;
      if (signals_ == 2) second_signal_at_ = now_;
      return feed(SignalArrived{prng_.chance(50) ? 15 : 2});
    }
    if (hanging_ && prng_.chance(10))
      return feed(WorkerHung{LocalRank{
          static_cast<int>(prng_.below(static_cast<std::uint64_t>(settings_.local_world_size)))}});
    if (leaving_until_) next = std::min(next, *leaving_until_);
    if (has_peers_ && !job_ended_) {  // After the end of the job the session sends nothing more.
      if (prng_.chance(4)) return feed(RestartOrdered{});
      if (prng_.chance(1)) return end_job(prng_.chance(50));
      if (prng_.chance(1)) return fail_rendezvous();
    }
    REQUIRE(next != Instant::max());  // Otherwise the supervisor waits for nothing: a hang.
    now_ = std::max(now_, next);
    if (joining_until_ && now_ >= *joining_until_) {
      joining_until_.reset();
      return answer_join();
    }
    if (leaving_until_ && now_ >= *leaving_until_) {
      leaving_until_.reset();
      return feed(JobEnded{.succeeded = prng_.chance(80), .reason = "elsewhere"});
    }
    finish_starts();
    end_workers();
    if (gone_at_ && now_ >= *gone_at_) {
      gone_at_.reset();
      report(EverythingGone{.complete = !prng_.chance(2)});
    }
    if (!reports_.empty() && reports_.front().first <= now_) {
      const SupervisorEvent event = reports_.front().second;
      reports_.pop_front();
      return feed(event);
    }
    feed(TimePassed{});
  }

  void answer_join() {
    if (prng_.chance(3)) return fail_rendezvous();
    if (!job_decides_) return feed(RendezvousCompleted{});
    if (job_restarts_ > settings_.max_restarts) return end_job(false);
    feed(RendezvousCompleted{.job_restarts = job_restarts_});
  }

  void fail_rendezvous() {
    rendezvous_failed_ = true;
    feed(RendezvousFailed{"no"});
  }

  void end_job(bool succeeded) {
    job_ended_ = true;
    job_failed_ = job_failed_ || !succeeded;
    joining_until_.reset();  // The rendezvous answers nothing any more.
    feed(JobEnded{.succeeded = succeeded, .reason = "elsewhere"});
  }

  void finish_starts() {
    std::erase_if(hanging_starts_, [this](const auto& start) {
      if (start.second <= now_) start_worker(start.first);
      return start.second <= now_;
    });
  }

  /// A signal that came before the worker's program ran is sent to it now.
  void start_worker(int rank) {
    alive_[rank] = draw_worker();
    report(WorkerStarted{LocalRank{rank}});
    if (stop_signal_ != 0) send(alive_[rank], stop_signal_);
  }

  void end_workers() {
    for (auto it = alive_.begin(); it != alive_.end();) {
      if (it->second.ends_at > now_) {
        ++it;
        continue;
      }
      report(WorkerEnded{LocalRank{it->first}, it->second.end});
      it = alive_.erase(it);
    }
  }

  /// Reports arrive a little later and in order, as from the shim.
  void report(SupervisorEvent event) {
    Instant due = now_ + ms(prng_.below(20));
    if (!reports_.empty()) due = std::max(due, reports_.back().first);
    reports_.emplace_back(due, std::move(event));
  }

  void apply(const JoinRendezvous&) {
    REQUIRE(alive_.empty());
    REQUIRE_FALSE(rendezvous_failed_);
    REQUIRE_FALSE(job_ended_);
    joining_until_ = now_ + ms(prng_.below(3000));
  }

  void apply(const StartWorkers& action) {
    // No worker of an old attempt may live, and the restarts must stay within the limit.
    REQUIRE(alive_.empty());
    REQUIRE(action.restart_count == (job_decides_ ? job_restarts_ : failures_));
    REQUIRE(action.restart_count <= settings_.max_restarts);
    REQUIRE_FALSE(job_ended_);
    REQUIRE(signals_ == 0);
    ++attempts_;
    stop_signal_ = 0;
    for (int rank = 0; rank < settings_.local_world_size; ++rank) {
      if (start_failing_ && prng_.chance(10)) {
        start_failed_ = true;
        report(WorkerStartFailed{LocalRank{rank}, "no such file"});
        continue;
      }
      if (start_hanging_ && prng_.chance(30))
        hanging_starts_[rank] = now_ + ms(prng_.below(100'000));
      else
        start_worker(rank);
    }
  }

  Worker draw_worker() {
    Worker worker{.ends_at = now_ + ms(prng_.below(100'000))};
    if (failing_ && prng_.chance(30)) worker.end = {.killed = prng_.chance(40), .status = 9};
    worker.ignores_signals = stubborn_ && prng_.chance(20);
    worker.takes_to_end = ms(prng_.below(500));
    return worker;
  }

  void apply(const SignalWorkers& action) {
    stop_signal_ = action.number;
    for (auto& [rank, worker] : alive_)
      send(worker, action.number);
  }

  void send(Worker& worker, int number) {
    if (worker.ignores_signals || worker.ends_at <= now_ + worker.takes_to_end) return;
    worker.ends_at = now_ + worker.takes_to_end;
    worker.end = prng_.chance(20) ? WorkerExit{} : WorkerExit{.killed = true, .status = number};
  }

  void apply(const EndWorker& action) {
    REQUIRE((action.number == 6 || action.number == 9));
    const auto found = alive_.find(action.rank.value);
    if (found == alive_.end()) return;  // The worker has ended. Its report is on its way.
    Worker& worker = found->second;
    if (action.number == 9 ? prng_.chance(2) : worker.ignores_signals) return;
    worker.ends_at = std::min(worker.ends_at, now_ + worker.takes_to_end);
    worker.end =
        prng_.chance(5) ? WorkerExit{} : WorkerExit{.killed = true, .status = action.number};
  }

  void apply(const KillEverything& action) {
    REQUIRE(supervisor_.state() == Supervisor::State::Killing);
    for (const auto& [rank, starts_at] : std::exchange(hanging_starts_, {}))
      start_worker(rank);
    for (auto& [rank, worker] : alive_)
      report(WorkerEnded{LocalRank{rank}, {.killed = true, .status = 9}});
    alive_.clear();
    const Duration most = action.times.until_sigterm + action.times.until_sigkill;
    // What is left uses its time; mostly nothing is left.
    const Instant gone_at = now_ + (prng_.chance(30) ? most : Duration{});
    gone_at_ = gone_at_ ? std::min(*gone_at_, now_ + most) : gone_at;
    if (second_signal_at_) CHECK(*gone_at_ - *second_signal_at_ <= 1s);
  }

  void apply(const AnnounceFailure& action) {
    ++failures_;
    ++job_restarts_;
    REQUIRE_FALSE(action.exit.ok());
    REQUIRE(action.restarts_left >= 0);
  }

  void apply(const ReportEnd& action) {
    REQUIRE(alive_.empty());
    reported_ = action.succeeded;
    leaving_until_ = now_ + ms(prng_.below(3000));
  }

  void apply(const LeaveRendezvous&) { REQUIRE_FALSE(std::exchange(left_, true)); }

  void apply(const Finish& action) {
    REQUIRE_FALSE(finish_);
    REQUIRE(alive_.empty());
    finish_ = action;
  }

  void check_end() {
    REQUIRE(finish_);
    CHECK(failures_ <= settings_.max_restarts + 1);
    if (reported_)
      CHECK(*reported_ == (finish_->why == Finish::Why::Succeeded ||
                           // A signal arrived during the wait.
                           finish_->why == Finish::Why::Signalled));
    else  // The end is not reported if the job has ended, this node left, or there is no
          // rendezvous.
      CHECK((job_ended_ || left_ || rendezvous_failed_));
    CHECK_FALSE(supervisor_.next_deadline());
    switch (finish_->why) {
      case Finish::Why::Succeeded:
        CHECK((job_ended_ || failures_ <= attempts_ - 1));
        CHECK((has_peers_ || failures_ == attempts_ - 1));
        break;
      case Finish::Why::JobFailed:
        CHECK(job_failed_);
        CHECK(finish_->reason == "elsewhere");
        break;
      case Finish::Why::WorkerFailed:
        CHECK((failures_ > 0 || !finish_->reason.empty()));
        break;
      case Finish::Why::StartFailed:
        CHECK(start_failed_);
        break;
      case Finish::Why::RendezvousFailed:
        CHECK(rendezvous_failed_);
        CHECK(finish_->reason == "no");
        break;
      case Finish::Why::Signalled:
        CHECK(signals_ > 0);
        break;
    }
    if (!job_ended_ && !rendezvous_failed_ && signals_ == 0 &&
        finish_->why == Finish::Why::WorkerFailed && finish_->reason.empty())
      CHECK(failures_ == settings_.max_restarts + 1);          // All restarts were used.
    CHECK(supervisor_.step(SignalArrived{15}, now_).empty());  // After the end nothing happens.
  }

  testing::Prng prng_;
  SupervisorSettings settings_;
  bool failing_, signalling_, start_failing_, start_hanging_, stubborn_, hanging_, has_peers_,
      job_decides_;
  Supervisor supervisor_;
  Instant now_{};
  std::map<int, Worker> alive_;
  std::map<int, Instant> hanging_starts_;  // By rank: when the worker's program runs.
  int stop_signal_ = 0;                    // The signal of this attempt's stop; 0: none.
  std::deque<std::pair<Instant, SupervisorEvent>> reports_;
  std::optional<Instant> gone_at_;  // When nothing is left of the attempt.
  std::optional<Instant> joining_until_;
  std::optional<Instant> second_signal_at_;
  std::optional<Finish> finish_;
  int attempts_ = 0;
  int failures_ = 0;
  int signals_ = 0;
  int job_restarts_ = 0;
  std::optional<Instant> leaving_until_;
  std::optional<bool> reported_;
  bool left_ = false;
  bool job_ended_ = false;
  bool job_failed_ = false;
  bool rendezvous_failed_ = false;
  bool start_failed_ = false;
};

void run(std::uint64_t seed) {
  INFO("MUSTER_SEED=" << seed);
  World(seed).run();
}

TEST_CASE("simulation: the supervisor ends every job and leaves no process alive", "[simulation]") {
  testing::run_seeds(2000, run);
}

}  // namespace
}  // namespace muster
