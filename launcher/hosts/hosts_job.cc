#include "launcher/hosts/hosts_job.h"

#include <csignal>
#include <utility>

#include "base/seconds_text.h"

namespace muster {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;         // argparse's exit status.
constexpr int kNotFound = 127;    // Of a shell that does not find the program.
constexpr int kSshFailure = 255;  // Of ssh itself: ssh(1).
constexpr std::size_t kHostsShown = 8;

}  // namespace

HostsJob::HostsJob(Options options, Instant now)
    : options_(std::move(options)),
      hosts_(options_.hosts.size()),
      deadline_(later(now, kGreetWithin)),
      now_(now) {}

HostsJob::Actions HostsJob::step(const Event& event, Instant now) {
  now_ = std::max(now_, now);
  std::visit([this](const auto& one) { on(one); }, event);
  return std::exchange(actions_, {});
}

std::size_t HostsJob::count(State state) const {
  std::size_t found = 0;
  for (const Host& host : hosts_)
    found += host.state == state ? 1 : 0;
  return found;
}

void HostsJob::on(const Greeted& event) {
  Host& host = hosts_[event.host];
  if (host.state != State::Starting || is_leaving_) return;
  if (event.version != options_.version)
    return fail_start(event.host, kFailure,
                      options_.hosts[event.host] + " has muster " + event.version +
                          ", and this machine has " + options_.version +
                          ": install the same on both");
  host.state = State::Ready;
  if (count(State::Ready) < hosts_.size()) return;
  has_begun_ = true;
  deadline_.reset();
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    actions_.push_back(SendJob{i});
}

std::string HostsJob::start_failure(const Ended& event) const {
  const std::string& host = options_.hosts[event.host];
  const std::string words = event.last_words.empty() ? "" : ": " + event.last_words;
  switch (event.status) {
    case kNotFound:
      return host + " has no muster: it is neither at " + options_.program +
             " nor in the PATH of a command that ssh runs there (" + "`ssh " + host +
             " muster --version` tries that)" + words;
    case kUsage:
      return host + " has another muster, which does not know --hosts" + words;
    case kSshFailure:
      return "ssh reaches no shell on " + host + words + "; `ssh -o BatchMode=yes " + host +
             " true` must work without a question";
    default:
      return host + " ended with status " + std::to_string(event.status) +
             " before its muster answered" + words;
  }
}

/// Gives the job up before it has begun: no host shall wait for the others.
void HostsJob::fail_start(std::size_t host, int status, const std::string& why) {
  say(why);
  if (cause_) return;
  cause_ = status;
  hosts_[host].failed = true;
  leave_all();
}

void HostsJob::leave_all() {
  if (std::exchange(is_leaving_, true)) return;
  deadline_ = later(now_, kLeaveWithin);
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].state == State::Starting) actions_.push_back(Kill{i});
    if (hosts_[i].state == State::Ready) actions_.push_back(CloseInput{i});
  }
}

void HostsJob::on(const Ended& event) {
  Host& host = hosts_[event.host];
  if (host.state == State::Ended) return;
  host.state = State::Ended;
  if (!has_begun_) {
    if (!is_leaving_)
      fail_start(event.host, event.status == 0 ? kFailure : event.status, start_failure(event));
  } else if (event.status != 0) {
    host.failed = true;
    report_failure(event);
  }
  finish_if_all_ended();
}

void HostsJob::report_failure(const Ended& event) {
  // Hosts that the rendezvous told of a failure elsewhere end with 1, often before that host does.
  if (!cause_ || (*cause_ == kFailure && !is_told_ && signals_ == 0)) {
    cause_ = event.status;
    cause_host_ = event.host;
  }
  if (signals_ > 0) return;  // They end because they were told to.
  if (event.status == kSshFailure)
    say("the connection to " + options_.hosts[event.host] + " is lost" +
        (event.last_words.empty() ? "" : ": " + event.last_words));
  std::size_t working = 0;
  for (const Host& one : hosts_)
    working += one.failed ? 0 : 1;
  if (working >= static_cast<std::size_t>(options_.min_nodes) || is_told_ || deadline_) return;
  if (count(State::Ended) < hosts_.size()) deadline_ = later(now_, kLearnWithin);
}

void HostsJob::on(const SignalCame& event) {
  if (!event.ends) {
    for (std::size_t i = 0; has_begun_ && i < hosts_.size(); ++i)
      if (hosts_[i].state == State::Ready) actions_.push_back(SendSignal{i, event.number});
    return;
  }
  ++signals_;
  if (signal_ == 0) signal_ = event.number;
  if (!has_begun_) {
    cause_ = cause_.value_or(128 + event.number);
    leave_all();
    return finish_if_all_ended();
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i].state == State::Ready) actions_.push_back(SendSignal{i, event.number});
  // A second signal makes the hosts kill their workers. A host that does not even do that is cut
  // off.
  if (signals_ > 1) deadline_ = later(now_, kLeaveWithin);
}

void HostsJob::on(const TimeHasPassed&) {
  if (!deadline_ || now_ < *deadline_) return;
  deadline_.reset();
  if (!has_begun_ && !is_leaving_) {
    std::string silent;
    std::size_t first = hosts_.size();
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].state != State::Starting) continue;
      silent += (silent.empty() ? "" : ", ") + options_.hosts[i];
      first = std::min(first, i);
    }
    return fail_start(
        first, kFailure,
        "no answer of muster within " + seconds_text(kGreetWithin) + " from " + silent);
  }
  if (is_leaving_ || signals_ > 1) {
    for (std::size_t i = 0; i < hosts_.size(); ++i)
      if (hosts_[i].state != State::Ended) actions_.push_back(Kill{i});
    return;
  }
  is_told_ = true;
  say("ending the job on the other hosts", false);
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i].state == State::Ready) actions_.push_back(SendSignal{i, SIGTERM});
}

std::string HostsJob::failure_text() const {
  if (cause_ && *cause_ != kFailure)
    return "the job has failed: " + options_.hosts[cause_host_] + " ended with status " +
           std::to_string(*cause_);
  std::string text;
  std::size_t failed = 0;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[i].failed) continue;
    if (++failed <= kHostsShown) text += (text.empty() ? "" : ", ") + options_.hosts[i];
  }
  if (failed > kHostsShown) text += " and " + std::to_string(failed - kHostsShown) + " more";
  return "the job has failed on " + text +
         ": the cause is in the lines of the host that failed first";
}

void HostsJob::finish_if_all_ended() {
  if (count(State::Ended) < hosts_.size()) return;
  deadline_.reset();
  std::size_t succeeded = 0;
  for (const Host& host : hosts_)
    succeeded += host.failed ? 0 : 1;
  Finish finish{.status = cause_.value_or(0), .signal = signal_};
  // An elastic job may lose hosts and end well.
  if (has_begun_ && signals_ == 0 && !is_told_ &&
      succeeded >= static_cast<std::size_t>(options_.min_nodes))
    finish.status = 0;
  if (has_begun_ && !cause_) finish.signal = 0;  // It had ended well before the signal.
  if (has_begun_ && finish.status != 0 && signals_ == 0) say(failure_text());
  actions_.push_back(finish);
}

}  // namespace muster
