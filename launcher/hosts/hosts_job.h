// The rules of a job on several hosts (--hosts): all hosts or none begin, a host that fails ends
// the job, and the first cause decides the exit status.
//
// Pure: events go in, actions come out, and the time is an argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"

namespace muster {

class HostsJob {
 public:
  // --- events ---
  /// The host's muster has sent its first line.
  struct Greeted {
    std::size_t host = 0;
    std::string version;
  };
  /// The ssh of a host has ended. `status`: as a shell shows it, so 128 + N for signal N.
  struct Ended {
    std::size_t host = 0;
    int status = 0;
    std::string last_words;  // The end of what ssh and the host wrote to stderr.
  };
  /// muster got a signal. `ends`: it is one that ends the job.
  struct SignalCame {
    int number = 0;
    bool ends = true;
  };
  struct TimeHasPassed {};
  using Event = std::variant<Greeted, Ended, SignalCame, TimeHasPassed>;

  // --- actions ---
  struct SendJob {
    std::size_t host = 0;
  };
  struct SendSignal {
    std::size_t host = 0;
    int number = 0;
  };
  /// The host's muster then ends its part.
  struct CloseInput {
    std::size_t host = 0;
  };
  struct Kill {
    std::size_t host = 0;
  };
  struct Say {
    std::string text;
    bool is_error = true;
  };
  /// Every ssh has ended. `signal`: muster dies of it; 0: it exits with `status`.
  struct Finish {
    int status = 0;
    int signal = 0;
  };
  using Action = std::variant<SendJob, SendSignal, CloseInput, Kill, Say, Finish>;
  using Actions = std::vector<Action>;

  struct Options {
    std::vector<std::string> hosts;  // For people.
    int min_nodes = 1;               // With fewer hosts the job cannot go on.
    std::string version;             // Of this muster.
    std::string program;             // Where it was looked for on the hosts, besides PATH.
  };

  static constexpr Duration kGreetWithin = std::chrono::seconds(60);
  /// The time that the other hosts have to learn from the rendezvous that the job has failed.
  static constexpr Duration kLearnWithin = std::chrono::seconds(10);
  /// The time between the end of a host's input and the end of its ssh, if it had no job yet.
  static constexpr Duration kLeaveWithin = std::chrono::seconds(5);

  HostsJob(Options options, Instant now);
  Actions step(const Event& event, Instant now);
  std::optional<Instant> next_deadline() const { return deadline_; }

 private:
  enum class State { Starting, Ready, Ended };
  struct Host {
    State state = State::Starting;
    bool failed = false;
  };

  void on(const Greeted& event);
  void on(const Ended& event);
  void on(const SignalCame& event);
  void on(const TimeHasPassed& event);
  void fail_start(std::size_t host, int status, const std::string& why);
  void leave_all();
  void report_failure(const Ended& event);
  void finish_if_all_ended();
  std::string failure_text() const;
  std::size_t count(State state) const;
  std::string start_failure(const Ended& event) const;
  void say(std::string text, bool is_error = true) {
    actions_.push_back(Say{std::move(text), is_error});
  }

  Options options_;
  std::vector<Host> hosts_;
  bool has_begun_ = false;   // All hosts have their job.
  bool is_leaving_ = false;  // The job was given up before it began.
  bool is_told_ = false;     // The hosts that are left were told to end.
  int signal_ = 0;           // The first one that ended the job.
  int signals_ = 0;
  std::optional<int> cause_;  // The exit status of the first host that failed.
  std::size_t cause_host_ = 0;
  std::optional<Instant> deadline_;
  Instant now_{};
  Actions actions_;
};

}  // namespace muster
