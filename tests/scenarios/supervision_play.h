// Plays the supervision of one node's workers from lines of text: commands go in, the actions of
// the supervisor and the signals to the workers come out.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/exit_report.h"
#include "agent/core/notice_answers.h"
#include "agent/core/preemption.h"
#include "agent/core/signal_events.h"
#include "agent/core/supervisor.h"

namespace muster::testing {

/// A line is "SECONDS COMMAND ...". Before all others there may be a line "settings KEY=VALUE ...".
/// tests/scenarios/README.md lists the commands. The play does what the agent's and the shim's
/// shells do with the decisions of the core: it passes on signals, keeps the records of the
/// workers, and makes the report.
class SupervisionPlay {
 public:
  /// Advances to the command's time, executes it, and returns the output line by line. For a
  /// command that is not valid, the output is the reason.
  std::vector<std::string> command(const std::string& line);

 private:
  using Words = std::vector<std::string>;
  struct Worker {
    ExplainedEnd end;
    bool is_alive = false;
    bool catches = false;      // It handles signals, and may outlive them.
    bool ends_itself = false;  // It has promised so over the worker channel.
  };

  void settings(const Words& words);
  void pass_until(Instant end);
  void act(const std::string& verb, const Words& words);
  void worker(const Words& words);
  void signal(const Words& words);
  void notify();
  void check_answers();
  void send(LocalRank rank, int number);
  void feed(const SupervisorEvent& event);
  void apply(const JoinRendezvous& action);
  void apply(const WaitToJoin& action);
  void apply(const StartWorkers& action);
  void apply(const SignalWorkers& action);
  void apply(const EndWorker& action);
  void apply(const KillEverything& action);
  void apply(const AnnounceFailure& action);
  void apply(const ReportEnd& action);
  void apply(const LeaveRendezvous& action);
  void apply(const Finish& action);
  void print_report();
  void print(const std::string& text);
  std::int64_t now_ms() const;

  SupervisorSettings setup_;
  std::optional<Supervisor> supervisor_;
  std::optional<NoticeAnswers> answers_;
  int notices_ = 0;
  SignalEvents signals_;
  Preemption preemption_;
  std::map<LocalRank, Worker> workers_;
  int deaths_ = 0;
  int stop_signal_ = 0;
  bool notified_ = false;
  Instant now_{};
  std::vector<std::string> output_;
};

}  // namespace muster::testing
