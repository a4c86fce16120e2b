#include "agent/core/exit_report.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/core/failure_notes.h"
#include "agent/core/report_text.h"
#include "agent/core/signal_name.h"
#include "agent/core/tail_ring.h"
#include "base/time_text.h"

namespace muster {
namespace {

constexpr std::size_t kMaxWidth = 60;            // torchrun 2.13.
constexpr std::ptrdiff_t kRepeatedLinesMin = 3;  // A shorter text is shown for each rank.
constexpr std::string_view kRecordHelp = "https://pytorch.org/docs/stable/elastic/errors.html";

bool dumps_core(int signal) {
  constexpr int kSignals[] = {SIGQUIT, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                              SIGFPE,  SIGSEGV, SIGSYS,  SIGXCPU, SIGXFSZ};
  return std::find(std::begin(kSignals), std::end(kSignals), signal) != std::end(kSignals);
}

// "Signal 11 (SIGSEGV) received by PID 123", in torchrun's words, then a line that explains it.
std::string signal_text(const ExplainedEnd& end, bool is_victim) {
  if (!end.exit.killed) return "";
  const std::string name = signal_name(end.exit.status);
  std::string note = "Signal " + std::to_string(end.exit.status) + " (" +
                     (name.empty() ? "<N/A>" : name) + ") received by PID " +
                     std::to_string(end.pid);
  if (end.exit.core_dumped) {
    note += "\ncore dumped (coredumpctl list, or see /proc/sys/kernel/core_pattern)";
  } else if (!end.ended_because.empty()) {
    return note;  // The reason is sufficient.
  } else if (dumps_core(end.exit.status)) {
    note += "\nno core was dumped (ulimit -c unlimited allows it)";
  } else if (!end.oom_evidence.empty()) {
    note += "\nkilled by the kernel's OOM killer: " + end.oom_evidence;
  } else if (end.exit.status == SIGKILL && !is_victim && !end.unchanged_oom_counter.empty()) {
    note +=
        "\nSIGKILL from outside (not muster): somebody's kill -9; not the kernel's OOM killer, "
        "which "
        "has killed nobody in " +
        end.unchanged_oom_counter;
  } else if (end.exit.status == SIGKILL && !is_victim) {
    note +=
        "\nSIGKILL from outside (not muster): somebody's kill -9, or perhaps the OOM killer, of "
        "which no trace can be read here (see dmesg)";
  }
  return note;
}

std::string exit_code_text(const WorkerEnd& end) {
  return end.has_ended() ? std::to_string(end.exit.code()) : "<N/A>";
}

nlohmann::ordered_json died_json(const WorkerEnd& end) {
  if (!end.has_ended()) return nullptr;
  return utc_text(std::chrono::milliseconds(end.died_ms));
}

// How the user can get more information next time.
std::string hint(const ExplainedEnd& end) {
  std::string text;
  if (!end.stderr_file.empty())
    text = "it wrote nothing to its stderr, " + end.stderr_file + "\n";
  else if (end.stderr_known)
    text = end.tail_is_output ? "it wrote nothing to stdout and stderr\n"
                              : "it wrote nothing to stderr\n";
  else
    text =
        "nothing of its stderr is known here: look further up, or keep it with --redirects 2 "
        "or --tee 2\n";
  // A traceback helps where Python has ended by itself.
  return end.exit.killed || !end.has_ended()
             ? text.substr(0, text.size() - 1)
             : text.append("To enable traceback see: ").append(kRecordHelp);
}

void add_end(nlohmann::ordered_json& json, const WorkerEnd& end) {
  json["rank"] = end.rank.value;
  json["local_rank"] = end.local_rank.value;
  json["pid"] = end.pid;
  json["exitcode"] = end.has_ended() ? nlohmann::ordered_json(end.exit.code()) : nullptr;
  json["signal"] = end.exit.killed ? nlohmann::ordered_json(signal_name(end.exit.status)) : nullptr;
}

nlohmann::ordered_json failure_json(const ExplainedEnd& end, bool is_victim) {
  nlohmann::ordered_json json;
  add_end(json, end);
  json["core_dumped"] = end.exit.core_dumped;
  json["victim"] = is_victim;
  json["oom_evidence"] =
      end.oom_evidence.empty() ? nullptr : nlohmann::ordered_json(end.oom_evidence);
  json["died"] = died_json(end);
  json["ended_because"] =
      end.ended_because.empty() ? nullptr : nlohmann::ordered_json(end.ended_because);
  json["notes"] = end.notes;
  json["error_file"] = end.error_file.empty() ? nullptr : nlohmann::ordered_json(end.error_file);
  json["error"] = nullptr;
  json["error_file_defect"] = nullptr;
  if (end.error && end.error->has_value()) {
    const ErrorRecord& record = **end.error;
    json["error"] = {{"message", record.message}, {"traceback", record.traceback}};
    json["error"]["timestamp"] =
        record.timestamp_s ? nlohmann::ordered_json(*record.timestamp_s) : nullptr;
    json["error"]["error_code"] =
        record.error_code ? nlohmann::ordered_json(*record.error_code) : nullptr;
  } else if (end.error) {
    json["error_file_defect"] = describe(end.error->error());
  }
  json["stderr_file"] = end.stderr_file.empty() ? nullptr : nlohmann::ordered_json(end.stderr_file);
  json["stderr_known"] = end.stderr_known;
  json["stderr_tail"] = end.tail_is_output ? "" : end.stderr_tail;
  json["output_tail"] = end.tail_is_output ? nlohmann::ordered_json(end.stderr_tail) : nullptr;
  return json;
}

nlohmann::ordered_json earlier_json(const AttemptCause& cause) {
  nlohmann::ordered_json json;
  json["attempt"] = cause.attempt;
  add_end(json, cause.end);
  json["died"] = died_json(cause.end);
  json["cause"] = cause.text;
  return json;
}

// True if the worker's end can be a consequence of muster's signals. If its program handled such a
// signal in its own way, every end but a crash can be a consequence.
bool follows_from_signals(const ExplainedEnd& end) {
  if (!end.has_ended()) return true;
  if (!end.exit.killed) return end.can_outlive_signal;  // If false, it was already exiting.
  if (end.was_sent(end.exit.status)) return true;
  return end.can_outlive_signal && end.exit.status != SIGKILL && !dumps_core(end.exit.status);
}

}  // namespace

ExitReport::ExitReport(ReportOptions options, std::vector<ExplainedEnd> ends)
    : options_(std::move(options)), failures_(std::move(ends)) {
  WallClockWatch clock;
  for (const ExplainedEnd& end : failures_)
    clock.add(end.clock);
  clock_was_set_ = clock.was_set();
  const std::vector<WorkerEnd> all(failures_.begin(), failures_.end());
  std::erase_if(failures_, [](const ExplainedEnd& end) { return !end.has_failed(); });
  const auto place = [](const ExplainedEnd& end) { return std::pair(!end.has_ended(), end.order); };
  std::sort(failures_.begin(), failures_.end(),
            [&place](const ExplainedEnd& a, const ExplainedEnd& b) { return place(a) < place(b); });
  // Error files have a resolution of one second, and their time is not the time of death: within
  // one second, the kernel's order of deaths decides.
  const auto key = [this, &place](const ExplainedEnd& end) {
    return std::tuple(is_victim(end), clock_was_set_ ? 0 : failed_s(end), place(end));
  };
  const auto first = std::min_element(
      failures_.begin(), failures_.end(),
      [&key](const ExplainedEnd& a, const ExplainedEnd& b) { return key(a) < key(b); });
  first_ = static_cast<std::size_t>(first - failures_.begin());
  if (failures_.empty() || clock_was_set_) return;
  if (std::string note = early_ends_note(all, *first); !note.empty())
    first->notes.push_back(std::move(note));
}

const ExplainedEnd* ExitReport::first_failure() const {
  return failures_.empty() ? nullptr : &failures_[first_];
}

std::int64_t ExitReport::end_ms(const ExplainedEnd& end) const {
  return end.has_ended() ? end.died_ms : options_.now_ms;
}

std::optional<std::int64_t> ExitReport::recorded_s(const ExplainedEnd& end) const {
  if (clock_was_set_ || !end.error || !end.error->has_value()) return std::nullopt;
  const auto& second = (*end.error)->timestamp_s;
  // A time before the attempt or after the death comes from an old file or from a different clock.
  if (!second || *second < floor_s(options_.started_ms) || *second > floor_s(end_ms(end)))
    return std::nullopt;
  return second;
}

std::int64_t ExitReport::failed_s(const ExplainedEnd& end) const {
  return recorded_s(end).value_or(floor_s(end_ms(end)));
}

std::int64_t ExitReport::shown_s(const ExplainedEnd& end) const {
  const bool has_record = end.error && end.error->has_value();
  return (has_record ? (*end.error)->timestamp_s : std::nullopt).value_or(floor_s(end_ms(end)));
}

bool ExitReport::is_victim(const ExplainedEnd& end) const {
  if (!end.ended_because.empty()) return false;  // It had failed before all were signalled.
  if (!end.signalled_ms || !follows_from_signals(end)) return false;
  // If it recorded an error before it was signalled, it failed by itself and was only slow to end.
  const auto recorded = recorded_s(end);
  return !recorded || *recorded >= floor_s(*end.signalled_ms);
}

std::string ExitReport::victim_text(const ExplainedEnd& end) const {
  if (!is_victim(end)) return "";
  std::string note = "stopped by muster";
  if (const ExplainedEnd& first = failures_[first_]; !is_victim(first))
    note += ", because rank " + std::to_string(first.rank.value) + " had failed";
  return note;
}

// The text after "traceback :", with the notes at its end.
std::string ExitReport::explanation(const ExplainedEnd& end) const {
  std::string text = own_explanation(end);
  for (const std::string& note : end.notes) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += note;
  }
  return text;
}

// If torchrun has words for the end, they are alone on the first line.
std::string ExitReport::own_explanation(const ExplainedEnd& end) const {
  std::string text = signal_text(end, is_victim(end));
  const auto add_line = [&text](std::string_view line) {
    if (!text.empty() && !line.empty()) text += '\n';
    text += line;
  };
  add_line(end.ended_because);
  if (!end.has_ended()) add_line("it did not end after SIGKILL: it is left behind");
  add_line(victim_text(end));
  if (end.error && end.error->has_value()) {
    const ErrorRecord& record = **end.error;
    const std::string& message = record.traceback.empty() ? record.message : record.traceback;
    if (!message.empty()) {
      add_line(message);
      return text;
    }
  } else if (end.error) {
    add_line("its error file cannot be read: " + std::string(describe(end.error->error())));
  }
  const std::string stderr_end = without_frames(end.stderr_tail);
  const std::string_view tail = last_lines(stderr_end, TailLimits{}, true);
  if (!tail.empty()) {
    add_line(end.tail_is_output ? "the last lines of its output:"
                                : "the last lines of its stderr:");
    return text + presentable(tail);
  }
  if (!is_victim(end)) add_line(hint(end));
  return text;
}

std::string ExitReport::block(std::size_t index, const std::string& explained) const {
  const ExplainedEnd& end = failures_[index];
  const std::string name = end.exit.killed ? signal_name(end.exit.status) : "";
  const std::int64_t local_s = shown_s(end) + options_.utc_offset_s;
  std::string text = "[" + std::to_string(index) + "]:\n";
  text += "  time      : " + date_time(local_s, '_') + "\n";
  text += "  host      : " + options_.host + "\n";
  text += "  rank      : " + std::to_string(end.rank.value) +
          " (local_rank: " + std::to_string(end.local_rank.value) + ")\n";
  text += "  exitcode  : " + exit_code_text(end) + " (pid: " + std::to_string(end.pid) + ") " +
          (name.empty() ? "" : " (" + name + ")") + "\n";
  text += "  error_file: " + (end.error_file.empty() ? "<N/A>" : end.error_file) + "\n";
  text += "  traceback : " + indented(explained);
  return text;
}

// A thousand ranks that fail in one way would push the cause out of sight. The root cause itself is
// shown last, and in full.
std::string ExitReport::other_blocks() const {
  if (options_.only_first) return "";
  const auto rank_of = [this](std::size_t at) { return std::to_string(failures_[at].rank.value); };
  std::map<std::string, std::string> shown{
      {without_rank_prefixes(explanation(failures_[first_])), rank_of(first_) + ", below"}};
  std::string blocks;
  for (std::size_t i = 0; i < failures_.size(); ++i) {
    if (i == first_) continue;
    const std::string own = explanation(failures_[i]);
    const bool is_long = std::count(own.begin(), own.end(), '\n') >= kRepeatedLinesMin;
    const auto [same, is_new] = shown.emplace(without_rank_prefixes(own), rank_of(i) + ", above");
    const bool repeats = is_long && !is_new;
    blocks += block(i, repeats ? "the same as of rank " + same->second : own) + "\n";
  }
  return blocks;
}

// The notes stand below the cause, and stay as they are.
std::string ExitReport::with_red_cause(std::string block) const {
  const std::string own = indented(own_explanation(failures_[first_]));
  const std::size_t at = block.rfind(own);
  return at == std::string::npos ? block : block.replace(at, own.size(), with_red_last_line(own));
}

std::string ExitReport::text() const {
  if (failures_.empty()) return "";
  const std::string title = options_.title + " FAILED";
  std::string cause = block(first_, explanation(failures_[first_]));
  std::string others = other_blocks();
  std::size_t width = std::max({widest_line(title), widest_line(cause), widest_line(others)});
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  width = std::min(width, kMaxWidth);
  const std::string border(width, '=');
  const std::string section(width, '-');
  if (options_.coloured) cause = with_red_cause(std::move(cause));
  return "\n" + border + "\n" + title + "\n" + section + "\nFailures:\n" + others + section +
         "\nRoot Cause (first observed failure):\n" + cause + "\n" + border +
         (options_.earlier.empty() ? "" : "\n" + options_.earlier.text()) +
         (options_.advice.empty() ? "" : "\n" + options_.advice);
}

std::optional<AttemptCause> ExitReport::cause_of(int attempt) const {
  const ExplainedEnd* const end = first_failure();
  if (end == nullptr || is_victim(*end)) return std::nullopt;
  AttemptCause cause{.attempt = attempt, .end = *end, .text = {}};
  const std::string_view first_line = end->ended_because;
  if (end->error && end->error->has_value() && !(*end->error)->message.empty())
    cause.text = cause_line((*end->error)->message);
  else if (!first_line.empty())
    cause.text = cause_line(first_line.substr(0, first_line.find('\n')));
  else if (!end->oom_evidence.empty())
    cause.text = cause_line("killed by the kernel's OOM killer: " + end->oom_evidence);
  else
    cause.text = cause_line(end->stderr_tail);
  return cause;
}

std::string ExitReport::json() const {
  nlohmann::ordered_json json;
  json["title"] = options_.title;
  json["host"] = options_.host;
  json["ended_by"] = options_.cause ? options_.cause->kind : "worker_failed";
  json["reason"] = options_.cause ? nlohmann::ordered_json(options_.cause->text) : nullptr;
  json["first_failure"] = failures_.empty() || options_.cause
                              ? nullptr
                              : nlohmann::ordered_json(failures_[first_].rank.value);
  json["failures"] = nlohmann::ordered_json::array();
  for (const ExplainedEnd& end : failures_)
    json["failures"].push_back(failure_json(end, is_victim(end)));
  json["earlier_attempts"] = nlohmann::ordered_json::array();
  for (const AttemptCause& cause : options_.earlier.kept())
    json["earlier_attempts"].push_back(earlier_json(cause));
  json["earlier_attempts_left_out"] = options_.earlier.left_out();
  json["advice"] = options_.advice.empty() ? nullptr : nlohmann::ordered_json(options_.advice);
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ExitReport::error_file(std::string_view original) const {
  ErrorRecord record;
  if (options_.cause) {
    record.message = options_.cause->line();
    record.timestamp_s = floor_s(options_.now_ms);
    return write_error_file(record);
  }
  const ExplainedEnd* end = first_failure();
  if (end == nullptr) return "";
  if (auto merged = merge_error_file(original, end->exit.code())) return std::move(*merged);
  record.message = "rank " + std::to_string(end->rank.value) + " on " + options_.host +
                   (end->has_ended() ? " failed (exitcode: " + exit_code_text(*end) + ")"
                                     : " failed (it could not be killed)");
  record.traceback = explanation(*end);
  record.timestamp_s = failed_s(*end);
  if (end->has_ended()) record.error_code = end->exit.code();
  return write_error_file(record);
}

}  // namespace muster
