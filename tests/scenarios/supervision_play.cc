#include "tests/scenarios/supervision_play.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/core/signal_name.h"
#include "base/seconds_text.h"
#include "tests/scenarios/play_words.h"

namespace muster::testing {
namespace {

using namespace std::chrono_literals;

std::string name(LocalRank rank) {
  return "worker " + std::to_string(rank.value);
}

const char* name_of(Finish::Why why) {
  switch (why) {
    case Finish::Why::Succeeded:
      return "the job succeeded";
    case Finish::Why::WorkerFailed:
      return "a worker failed";
    case Finish::Why::StartFailed:
      return "a worker could not be started";
    case Finish::Why::RendezvousFailed:
      return "the rendezvous failed";
    case Finish::Why::JobFailed:
      return "the job failed on another node";
    case Finish::Why::Preempted:
      return "stopped for a notice";
    case Finish::Why::Signalled:
      return "a signal ended the job";
  }
  return "?";
}

int signal_of(const std::string& text) {
  const auto number = signal_number(text);
  if (!number) throw BadLine(text + "?");
  return *number;
}

std::string with_reason(const std::string& reason) {
  return reason.empty() ? "" : ": " + reason;
}

}  // namespace

std::int64_t SupervisionPlay::now_ms() const {
  return 1'790'000'000'000 + now_.time_since_epoch() / 1ms;
}

void SupervisionPlay::print(const std::string& text) {
  output_.push_back(testing::text_of(now_) + " " + text);
}

std::vector<std::string> SupervisionPlay::command(const std::string& line) {
  const Words words = words_of(line);
  output_.clear();
  try {
    if (words.size() < 2) throw BadLine("a time, and what?");
    if (words[0] == "settings") {
      settings(words);
      return output_;
    }
    if (!supervisor_) {
      supervisor_.emplace(setup_);
      answers_.emplace(setup_.local_world_size);
    }
    const Instant when = Instant{} + seconds(words[0]);
    if (when < now_) throw BadLine("time goes backwards");
    pass_until(when);
    if (words[1] != "passes") act(words[1], {words.begin() + 2, words.end()});
  } catch (const BadLine& bad) {
    output_.push_back(std::string("not understood: ") + bad.what());
  }
  return output_;
}

void SupervisionPlay::settings(const Words& words) {
  if (supervisor_) throw BadLine("settings come first");
  auto given = pairs({words.begin() + 1, words.end()});
  if (const auto workers = given.extract("workers"))
    setup_.local_world_size = number(workers.mapped());
  if (const auto restarts = given.extract("restarts"))
    setup_.max_restarts = number(restarts.mapped());
  if (const auto stop = given.extract("stop")) setup_.stop_timeout = seconds(stop.mapped());
  nothing_left(given);
}

void SupervisionPlay::pass_until(Instant end) {
  for (;;) {
    std::optional<Instant> next = preemption_.next_deadline();
    const auto stop = supervisor_->next_deadline();
    if (stop && (!next || *stop < *next)) next = stop;
    if (!next || *next > end) break;
    now_ = std::max(now_, *next);
    for (const LocalRank rank : preemption_.overdue(now_)) {
      if (workers_[rank].is_alive) print(name(rank) + " lives at the notice's deadline");
      send(rank, stop_signal_);
    }
    if (stop && *stop <= now_) feed(TimePassed{});
  }
  now_ = end;
}

void SupervisionPlay::act(const std::string& verb, const Words& words) {
  if (verb == "worker") return worker(words);
  if (verb == "signal") return signal(words);
  if (verb == "round-is-complete") {
    auto given = pairs(words);
    RendezvousCompleted completed;
    if (const auto restarts = given.extract("job-restarts"))
      completed.job_restarts = number(restarts.mapped());
    nothing_left(given);
    return feed(completed);
  }
  if (verb == "rendezvous-fails") return feed(RendezvousFailed{rest(words, 0)});
  if (verb == "restart-is-ordered") return feed(RestartOrdered{});
  if (verb == "round-ends-for-the-notice") return feed(RestartOrdered{.for_notice = true});
  if (verb == "job-has-succeeded") return feed(JobEnded{.succeeded = true, .reason = ""});
  if (verb == "job-has-failed") return feed(JobEnded{.succeeded = false, .reason = rest(words, 0)});
  if (verb == "job-is-preempted")
    return feed(JobEnded{.succeeded = false, .reason = rest(words, 0), .preempted = true});
  if (verb == "notice-until") {
    if (words.size() != 1) throw BadLine("until when?");
    answers_->notified(++notices_);
    feed(JobNoticed{Instant{} + seconds(words[0])});
    return check_answers();
  }
  if (verb == "everything-is-gone") return feed(EverythingGone{});
  if (verb == "a-process-is-left") return feed(EverythingGone{.complete = false});
  throw BadLine(verb + "?");
}

void SupervisionPlay::worker(const Words& words) {
  if (words.size() < 2) throw BadLine("which worker, and what?");
  const LocalRank rank{number(words[0])};
  Worker& worker = workers_[rank];
  const std::string& verb = words[1];
  if (verb == "starts") {
    worker = Worker{.is_alive = true};
    worker.end.local_rank = rank;
    worker.end.rank = GlobalRank{rank.value};
    worker.end.pid = 1000 + rank.value;
    for (std::size_t i = 2; i < words.size(); ++i) {
      if (words[i] == "catches")
        worker.catches = true;
      else if (words[i] == "ends-itself")
        worker.ends_itself = true;
      else
        throw BadLine(words[i] + "?");
    }
    feed(WorkerStarted{rank});
    // As in the shim: a signal that came before the program ran is sent now.
    if (supervisor_->state() == Supervisor::State::Stopping) send(rank, stop_signal_);
    return;
  }
  if (verb == "cannot-be-started") return feed(WorkerStartFailed{rank, rest(words, 2)});
  if (!worker.is_alive) throw BadLine(name(rank) + " is not alive");
  if (verb == "hangs") return feed(WorkerHung{rank});
  if (verb == "answers") {
    answers_->answered(rank, std::nullopt);
    return check_answers();
  }
  if (words.size() != 3) throw BadLine("with which code or signal?");
  WorkerExit exit;
  if (verb == "exits")
    exit.status = number(words[2]);
  else if (verb == "is-killed-by")
    exit = {.killed = true, .status = signal_of(words[2])};
  else
    throw BadLine(verb + "?");
  worker.is_alive = false;
  worker.end.exit = exit;
  worker.end.order = deaths_++;
  worker.end.died_ms = now_ms();
  const bool ahead = answers_->has_answered_ahead(rank);
  answers_->ended(rank, exit.ok());
  feed(WorkerEnded{.rank = rank,
                   .exit = exit,
                   .had_answered = !ahead && answers_->has_answered(rank),
                   .had_answered_ahead = ahead});
  check_answers();
}

void SupervisionPlay::check_answers() {
  if (answers_->take_complete()) feed(NoticeAnswered{});
}

void SupervisionPlay::signal(const Words& words) {
  if (words.empty()) throw BadLine("which signal?");
  const int number = signal_of(words[0]);
  const bool from_kernel = words.size() > 1 && words[1] == "from-kernel";
  if (words.size() > (from_kernel ? 2U : 1U)) throw BadLine(words.back() + "?");
  if (!signals_.begins_event({number, from_kernel}, now_))
    return print("(it belongs to the event before)");
  notify();
  feed(SignalArrived{number});
}

/// The first signal that comes while workers live sends them the notice.
void SupervisionPlay::notify() {
  std::set<LocalRank> promised;
  bool any_alive = false;
  for (const auto& [rank, worker] : workers_) {
    any_alive = any_alive || worker.is_alive;
    if (worker.is_alive && worker.ends_itself) promised.insert(rank);
  }
  if (!any_alive || std::exchange(notified_, true)) return;
  const Instant deadline = Preemption::deadline_of_notice(now_, setup_.stop_timeout);
  preemption_.notify(deadline, promised);
  print("notice to all workers: they have until " + testing::text_of(deadline));
}

void SupervisionPlay::send(LocalRank rank, int number) {
  Worker& worker = workers_[rank];
  if (!worker.is_alive) return;
  worker.end.record_signal(number, worker.catches && number != SIGKILL, now_ms());
  print(signal_name(number) + " to " + name(rank));
}

// --- actions -------------------------------------------------------------------------------------

void SupervisionPlay::feed(const SupervisorEvent& event) {
  for (const SupervisorAction& action : supervisor_->step(event, now_))
    std::visit([this](const auto& a) { apply(a); }, action);
}

void SupervisionPlay::apply(const JoinRendezvous&) {
  print("join the rendezvous");
}
void SupervisionPlay::apply(const WaitToJoin& action) {
  print("wait for " + seconds_text(action.wait));
}

void SupervisionPlay::apply(const StartWorkers& action) {
  workers_.clear();
  deaths_ = 0;
  preemption_.reset();
  answers_->attempt_begins();
  print("start the workers, restart " + std::to_string(action.restart_count));
}

void SupervisionPlay::apply(const SignalWorkers& action) {
  stop_signal_ = action.number;
  print("stop the workers with " + signal_name(action.number));
  for (const LocalRank rank : preemption_.signalled_at_once(setup_.local_world_size))
    send(rank, action.number);
}

void SupervisionPlay::apply(const EndWorker& action) {
  print(signal_name(action.number) + " to " + name(action.rank) + ", which hangs");
}

void SupervisionPlay::apply(const KillEverything& action) {
  const LeftoverTimes& times = action.times;
  const bool at_once = times.until_sigterm == Duration{} && times.until_sigkill == Duration{};
  print(at_once ? "kill everything"
                : "end the attempt; leftovers have " + seconds_text(times.until_sigterm));
  for (auto& [rank, worker] : workers_)
    send(rank, SIGKILL);
}

void SupervisionPlay::apply(const AnnounceFailure& action) {
  print("failed: " + name(action.rank) + " " + exit_text(action.exit) +
        "; restarts left: " + std::to_string(action.restarts_left));
}

void SupervisionPlay::apply(const ReportEnd& action) {
  print(std::string("report to the other nodes: ") + (action.succeeded ? "succeeded" : "failed") +
        with_reason(action.reason));
}

void SupervisionPlay::apply(const LeaveRendezvous&) {
  print("leave the rendezvous");
}

void SupervisionPlay::apply(const Finish& action) {
  const std::string signal = action.signal == 0 ? "" : " (" + signal_name(action.signal) + ")";
  print(std::string("finish: ") + name_of(action.why) + signal + with_reason(action.reason));
  print_report();
}

void SupervisionPlay::print_report() {
  std::vector<ExplainedEnd> ends;
  for (const auto& [rank, worker] : workers_)
    if (worker.end.has_ended()) ends.push_back(worker.end);
  const ExitReport report({.title = "train.py", .host = "node", .now_ms = now_ms()}, ends);
  const ExplainedEnd* first = report.first_failure();
  for (const ExplainedEnd& end : report.failures())
    print("  " + name(end.local_rank) + " " + exit_text(end.exit) +
          (report.is_victim(end) ? ": a victim" : "") + (&end == first ? ": named first" : ""));
}

}  // namespace muster::testing
