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
  bool had_answered = false;        // A notice of the job, when it ends.
  bool had_answered_ahead = false;  // One that has not come.
  Duration takes_to_end{};          // How long the worker takes to end after a signal.
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
        supervisor_((draw_policy(), settings_)) {}

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
  void draw_policy() {
    settings_.restart_policy.on = prng_.chance(50);
    if (settings_.restart_policy.on && prng_.chance(50))
      settings_.restart_policy.hangs = static_cast<int>(prng_.below(3));
  }

  int most_restarts() const {
    return settings_.max_restarts + settings_.restart_policy.hangs.value_or(0);
  }

  void feed(const SupervisorEvent& event) {
    if (is_for_notice(event) && has_workers())
      keeps_until_ = answered_ ? std::nullopt : told_;
    else if (is_urgent(event))
      keeps_until_.reset();
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
  static void trace(const WaitToJoin& action) { trace("wait", action.wait.count()); }
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
           supervisor_.state() == Supervisor::State::Running ||
           supervisor_.state() == Supervisor::State::Saved;
  }

  /// What stops workers although they have time left.
  static bool is_urgent(const SupervisorEvent& event) {
    const auto* ended = std::get_if<JobEnded>(&event);
    return std::holds_alternative<SignalArrived>(event) || (ended != nullptr && !ended->preempted);
  }

  static bool ends_attempt(const SupervisorEvent& event) {
    if (const auto* ended = std::get_if<JobEnded>(&event)) return !ended->succeeded;
    if (const auto* ended = std::get_if<WorkerEnded>(&event)) return !ended->exit.ok();
    return std::holds_alternative<RestartOrdered>(event) ||
           std::holds_alternative<WorkerStartFailed>(event);
  }

  /// The host's end of the round, which may be earlier than the deadline that the workers know.
  static bool is_for_notice(const SupervisorEvent& event) {
    if (const auto* ended = std::get_if<JobEnded>(&event)) return ended->preempted;
    const auto* restart = std::get_if<RestartOrdered>(&event);
    return restart != nullptr && restart->for_notice;
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
    if (prng_.chance(3)) {
      progressed_ = progressed_ || has_workers();
      return feed(ProgressMade{++step_});
    }
    if (hanging_ && prng_.chance(10))
      return feed(WorkerHung{LocalRank{
          static_cast<int>(prng_.below(static_cast<std::uint64_t>(settings_.local_world_size)))}});
    if (leaving_until_) next = std::min(next, *leaving_until_);
    if (has_peers_ && !job_ended_) {  // After the end of the job the session sends nothing more.
      if (prng_.chance(4)) return feed(RestartOrdered{.for_notice = noticed_ && prng_.chance(50)});
      if (prng_.chance(3)) return notify();
      if (prng_.chance(1)) return end_job(prng_.chance(50));
      if (noticed_ && prng_.chance(10)) return end_job(false, /*preempted=*/true);
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

  /// A notice of the job: some workers answer it, and end soon.
  void notify() {
    noticed_ = true;
    bool all = true;
    for (auto& [rank, worker] : alive_) {
      worker.had_answered = worker.had_answered || prng_.chance(70);
      worker.had_answered_ahead = false;
      if (worker.had_answered && prng_.chance(70))
        worker.ends_at = std::min(worker.ends_at, now_ + ms(prng_.below(20'000)));
      all = all && worker.had_answered;
    }
    told_ = now_ + ms(prng_.below(120'000));
    if (keeps_until_) keeps_until_ = told_;
    feed(JobNoticed{*told_});
    if (!all || alive_.empty()) return;
    answered_ = true;
    keeps_until_.reset();
    feed(NoticeAnswered{});
  }

  void end_job(bool succeeded, bool preempted = false) {
    job_ended_ = true;
    job_failed_ = job_failed_ || (!succeeded && !preempted);
    job_preempted_ = preempted;
    joining_until_.reset();  // The rendezvous answers nothing any more.
    feed(JobEnded{.succeeded = succeeded, .reason = "elsewhere", .preempted = preempted});
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
      const bool has_saved =
          (it->second.had_answered || it->second.had_answered_ahead) && it->second.end.ok();
      saved_ = saved_ || has_saved;
      const Worker& worker = it->second;
      report(WorkerEnded{.rank = LocalRank{it->first},
                         .exit = worker.end,
                         .had_answered = worker.had_answered,
                         .had_answered_ahead = worker.had_answered_ahead});
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
    REQUIRE((!wait_until_ || now_ >= *wait_until_));
    joining_until_ = now_ + ms(prng_.below(3000));
  }

  void apply(const WaitToJoin& action) {
    REQUIRE(settings_.restart_policy.on);
    REQUIRE(action.wait <= kLongestRestartWait);
    wait_until_ = now_ + action.wait;
  }

  void apply(const StartWorkers& action) {
    // No worker of an old attempt may live, and the restarts must stay within the limit.
    REQUIRE(alive_.empty());
    REQUIRE(action.restart_count == (job_decides_ ? job_restarts_ : failures_));
    REQUIRE(action.restart_count <= (job_decides_ ? settings_.max_restarts : most_restarts()));
    REQUIRE_FALSE(job_ended_);
    REQUIRE(signals_ == 0);
    ++attempts_;
    progressed_ = false;
    stop_signal_ = 0;
    told_.reset();
    answered_ = false;
    keeps_until_.reset();
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
    worker.had_answered_ahead = prng_.chance(5);
    return worker;
  }

  void apply(const SignalWorkers& action) {
    stop_signal_ = action.number;
    if (keeps_until_) REQUIRE(now_ >= *keeps_until_);
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
    row_ = progressed_ ? 0 : row_ + 1;
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
    CHECK(failures_ <= most_restarts() + 1);
    if (finish_->hopeless) {
      CHECK(settings_.restart_policy.on);
      CHECK(finish_->without_progress >= kAttemptsWithoutProgress);
      CHECK(row_ >= kAttemptsWithoutProgress);  // A job that gets further goes on.
    }
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
      case Finish::Why::Preempted:
        CHECK((job_preempted_ || saved_));
        CHECK(
            (job_preempted_ || finish_->reason.find("have saved and ended") != std::string::npos));
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
        finish_->why == Finish::Why::WorkerFailed && finish_->reason.empty() &&
        !settings_.restart_policy.on)
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
  std::int64_t step_ = 0;
  bool progressed_ = false;  // In this attempt.
  int row_ = 0;              // Attempts in a row that failed without progress.
  std::optional<Instant> wait_until_;
  std::optional<Instant> leaving_until_;
  std::optional<bool> reported_;
  bool left_ = false;
  bool job_ended_ = false;
  bool job_failed_ = false;
  bool job_preempted_ = false;
  bool noticed_ = false;
  std::optional<Instant> told_;         // The deadline that this attempt's workers know.
  bool answered_ = false;               // All of them have answered.
  std::optional<Instant> keeps_until_;  // The round has ended for a notice: no signal before.
  bool saved_ = false;                  // A worker has ended with 0 after its answer to a notice.
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
