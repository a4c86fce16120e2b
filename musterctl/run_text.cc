#include "musterctl/run_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/printable_text.h"
#include "base/take_line.h"
#include "musterctl/answer_json.h"
#include "musterctl/json_number.h"

namespace muster::ctl {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxShownMissing = 16;
constexpr std::size_t kMaxShownBytes = 2048;
constexpr std::size_t kMaxWatchedEvents = 5;
// A longer cell moves only the cells after it in its own row.
constexpr std::size_t kMaxColumnWidth = 100;

std::string plain_words(const Json& list, const char* key) {
  std::string lines;
  for (const Json& each : list) {
    const auto word = each.at(key).get<std::string>();
    const bool is_plain = std::all_of(word.begin(), word.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
             std::string_view("._:-").find(c) != std::string_view::npos;
    });
    if (is_plain) lines += word + "\n";
  }
  return lines;
}
std::string number(const Json& value) {
  return value.is_number() ? value.dump() : "-";
}
std::string text(const Json& value) {
  return value.is_string() ? safe(value.get<std::string>()) : "-";
}
std::string duration_of(const Json& seconds) {
  return seconds.is_number() ? duration_text(seconds.get<double>()) : "-";
}
std::string restarts(const Json& run) {
  return number(run.at("restarts_used")) + "/" + number(run.at("restarts_allowed"));
}
// "failures 1/3, hangs 0/2"; empty without --restart-policy, and with an older musterd.
std::string budgets(const Json& run) {
  const Json all = run.value("restart_budgets", Json());
  std::string list;
  if (!all.is_object()) return list;
  for (const char* name : {"failures", "hangs", "nodes"}) {
    const Json budget = all.value(name, Json());
    if (!budget.is_object()) continue;
    list += (list.empty() ? "" : ", ") + std::string(name) + " " + number(budget.at("used")) + "/" +
            number(budget.at("allowed"));
    if (budget.at("used") == budget.at("allowed")) list += " (used up)";
  }
  return list;
}
// What the restarts have cost, if that is more than their number says.
std::string budget_lines(const Json& run) {
  std::string lines;
  if (const std::string list = budgets(run); !list.empty())
    lines += "budgets of --restart-policy: " + list + "\n";
  const Json early = run.value("attempts_without_progress", Json());
  if (early.is_number() && early > 1)  // One alone is what a first failure mostly is.
    lines += "attempts in a row that ended before any progress: " + number(early) + "\n";
  return lines;
}
std::string needs(const Json& run) {
  const std::string least = number(run.at("min_nodes"));
  const std::string most = number(run.at("max_nodes"));
  return least == most ? least : least + ":" + most;
}

// "node 3 (10.0.0.7_123_0)"
std::string node_label(const Json& event) {
  const std::string node = text(event.at("node"));
  const Json& rank = event.at("group_rank");
  if (node == "-") return "";
  return rank.is_number() ? "node " + rank.dump() + " (" + node + ")" : "node " + node;
}

// "round_restarts" as people write it.
std::string words(const Json& name) {
  std::string shown = text(name);
  std::replace(shown.begin(), shown.end(), '_', ' ');
  return shown;
}

std::string event_line(const Json& event) {
  std::string line = text(event.at("at")) + "  " + words(event.at("kind"));
  line += "  round " + number(event.at("round"));
  if (event.contains("cause")) line += "  " + words(event.at("cause"));
  if (const std::string node = node_label(event); !node.empty()) line += "  " + node;
  if (event.contains("took_seconds")) line += "  after " + duration_of(event.at("took_seconds"));
  if (!event.at("text").get<std::string>().empty()) line += "  " + text(event.at("text"));
  if (event.contains("like_events"))
    line += "  (and " + number(event.at("like_events")) + " more of this kind)";
  return line + "\n";
}

std::string missing_lines(const Json& run) {
  const Json& missing = run.at("missing");
  std::string lines;
  std::size_t shown = 0;
  for (const Json& node : missing) {
    if (++shown > kMaxShownMissing) break;
    // The text says "node", not "rank": people look for the ranks of workers.
    lines += "  node " + number(node.at("group_rank")) + " (" + text(node.at("name")) + ")";
    if (node.at("expected").get<bool>())
      lines += " is alive and about to come back";
    else
      lines +=
          " is gone for " + duration_of(node.at("since_seconds")) + ": " + text(node.at("why"));
    lines += "\n";
  }
  const auto total = count(run.at("missing_total"));
  if (total > kMaxShownMissing)
    lines += "  and " + std::to_string(total - kMaxShownMissing) + " more\n";
  const auto lacking = count(run.at("lacking"));
  if (lacking > 0)
    lines += "  " + std::to_string(lacking) + " more " + (lacking == 1 ? "node" : "nodes") +
             " must come\n";
  return lines;
}

std::string strikes_text(const Json& strikes) {
  const std::int64_t failures = integer(strikes.at("failures"));
  const std::int64_t losses = integer(strikes.at("losses"));
  const auto counted = [](std::int64_t count, const char* one, const char* more) {
    return count == 0 ? std::string() : std::to_string(count) + (count == 1 ? one : more);
  };
  const std::string failed = counted(failures, " failure", " failures");
  const std::string lost = counted(losses, " loss", " losses");
  if (failed.empty() && lost.empty()) return "-";
  return failed + (failed.empty() || lost.empty() ? "" : ", ") + lost;
}

// Up to kMaxShownMissing names, and how many more there are.
std::string names_text(const Json& names, std::size_t total) {
  std::string line;
  std::size_t shown = 0;
  for (const Json& name : names) {
    if (shown == kMaxShownMissing) break;
    line += (shown++ == 0 ? "" : ", ") + text(name);
  }
  return total > shown ? line + " and " + std::to_string(total - shown) + " more" : line;
}

// The notice of the running round. An older musterd sends none.
std::string notice_lines(const Json& run) {
  if (!run.contains("notice") || !run.at("notice").is_object()) return {};
  const Json& notice = run.at("notice");
  std::string lines = "notice: " + text(notice.at("reason")) + "; its deadline is in " +
                      duration_of(notice.at("seconds")) + ", at " + text(notice.at("deadline")) +
                      "\n";
  lines += "  will go: " + names_text(notice.at("doomed"), count(notice.at("doomed_total"))) + "\n";
  lines += "  have saved: " + number(notice.at("saved_total")) + " nodes\n";
  if (const auto silent = count(notice.at("silent_total")); silent > 0)
    lines += "  have not saved yet: " + names_text(notice.at("silent"), silent) + "\n";
  return lines + "  then: " +
         (notice.at("follow") == "stop" ? "the job is stopped"
                                        : "the round restarts without the nodes that go") +
         "\n";
}

// Nodes that an operator keeps out, and hosts that have cost restarts. An older musterd sends
// neither.
std::string operator_lines(const Json& run) {
  std::string lines;
  if (run.contains("kept_out") && !run.at("kept_out").empty()) {
    lines += "\nkept out by an operator (musterctl allow lets in again)\n";
    for (const Json& entry : run.at("kept_out"))
      lines += "  " + text(entry.at("node")) + "  " + text(entry.at("how")) + "\n";
  }
  if (run.contains("strikes") && !run.at("strikes").empty()) {
    lines += "\nstrikes by host\n";
    for (const Json& host : run.at("strikes"))
      lines += "  " + text(host.at("address")) + "  " + strikes_text(host) + "\n";
  }
  return lines;
}

// A musterd that was started again does not know the first failure of a run that has failed, but it
// knows how the run ended.
std::string failure_in_list(const Json& run) {
  const Json& failure = run.at("first_failure");
  if (!failure.is_null()) return text(failure.at("text"));
  return run.at("state") == "failed" ? text(run.at("reason")) : "-";
}

bool has_ended(const Json& run) {
  return run.at("state") == "failed" || run.at("state") == "succeeded" ||
         run.at("state") == "preempted";
}

// " (ended 3 h ago)"; an older musterd does not say when.
std::string end_in_list(const Json& run) {
  const Json seconds = run.value("ended_seconds", Json());
  return has_ended(run) && seconds.is_number() ? " (ended " + duration_of(seconds) + " ago)" : "";
}

// What needs attention comes first: living runs that are not at work, those that are, and the ended
// ones, the newest first.
std::pair<int, double> urgency(const Json& run) {
  if (has_ended(run)) {
    const Json seconds = run.value("ended_seconds", Json());
    return {2, seconds.is_number() ? seconds.get<double>() : 0};
  }
  return {run.at("state") == "running" ? 1 : 0, 0};
}

// "2/3" of a living run: the nodes of the round and those that it needs.
std::string nodes_in_list(const Json& run) {
  return has_ended(run) ? "-" : number(run.at("nodes_in_round")) + "/" + needs(run);
}

// How long ago the run began. An older musterd does not say it.
std::string age_of(const Json& run) {
  return duration_of(run.value("began_seconds", Json()));
}

std::string make_runs(const Json& json) {
  std::vector<Json> runs(json.at("runs").begin(), json.at("runs").end());
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Json& a, const Json& b) { return urgency(a) < urgency(b); });
  std::vector<Row> rows{{"RUN", "STATE", "AGE", "ROUND", "NODES", "RESTARTS", "FIRST FAILURE"}};
  for (const Json& run : runs) {
    rows.push_back({text(run.at("id")), text(run.at("state")), age_of(run), number(run.at("round")),
                    nodes_in_list(run), restarts(run), failure_in_list(run) + end_in_list(run)});
  }
  const auto total = count(json.at("total"));
  if (total == 0) return "this musterd has no runs: no job has met here yet\n";
  std::string table = table_text(rows);
  if (total > rows.size() - 1)
    table += std::to_string(rows.size() - 1) + " of " + std::to_string(total) + " runs\n";
  return table;
}

// Makes a line safe for a terminal but leaves quotes and backslashes as they are: the line is shown
// without quotes around it.
std::string quoted_line(std::string_view line) {
  const std::string escaped = safe(line);
  std::string shown;
  for (std::size_t at = 0; at < escaped.size(); ++at) {
    const bool before_other =
        at + 1 < escaped.size() && escaped[at + 1] != 'x';  // A quote or a backslash.
    if (escaped[at] == '\\' && before_other) ++at;
    shown += escaped[at];
  }
  return shown;
}

// The report of the failed worker's node; empty if the node has sent none.
std::string report_lines(const Json& run) {
  if (!run.contains("first_failure_report") || run.at("first_failure_report").is_null()) return {};
  const Json& report = run.at("first_failure_report");
  std::string lines = "  rank " + number(report.at("rank")) + " (local rank " +
                      number(report.at("local_rank")) + ", pid " + number(report.at("pid")) + ") " +
                      text(report.at("exit")) + "\n";
  const auto add = [&](const char* name, const std::string& title) {
    std::string_view said = report.at(name).get_ref<const std::string&>();
    if (said.empty()) return;
    lines += title;
    while (!said.empty())
      lines += "    " + quoted_line(take_line(said)) + "\n";
  };
  add("because", "  muster says\n");
  add("message", "  its error\n");
  add("stderr_end", "  its last lines on stderr\n");
  return lines;
}

// "running: round 1 runs with 3 nodes". The reason of an ended run begins with "ended: ", which its
// state says.
std::string state_and_reason(const Json& run) {
  constexpr std::string_view kEnded = "ended: ";
  std::string reason = text(run.at("reason"));
  if (reason.starts_with(kEnded)) reason.erase(0, kEnded.size());
  return text(run.at("state")) + ": " + reason;
}

// The run's state, and what it waits for.
std::string state_lines(const Json& run) {
  std::string lines = text(run.at("id")) + "  " + text(run.at("state")) + "\n";
  lines += "  " + text(run.at("reason")) + "\n\n";
  // An older musterd says neither.
  const Json began = run.value("began_at", Json());
  const Json up = run.value("up_seconds", Json());
  if (began.is_string()) lines += "began " + age_of(run) + " ago, " + text(began);
  if (began.is_string() && up.is_number()) lines += "; workers run for " + duration_of(up);
  if (began.is_string()) lines += "\n";
  lines += table_text({{"round", number(run.at("round"))},
                       {"generation", number(run.at("generation"))},
                       {"restarts", restarts(run)},
                       {"nodes", number(run.at("nodes_in_round")) + " in the round, " +
                                     number(run.at("nodes")) + " in all; needs " + needs(run)}});
  lines += budget_lines(run);
  if (run.at("last_call_seconds").is_number())
    lines += "the last call ends in " + duration_of(run.at("last_call_seconds")) + "\n";
  if (const std::string notice = notice_lines(run); !notice.empty()) lines += "\n" + notice;
  if (const std::string missing = missing_lines(run); !missing.empty())
    lines += "\nmissing\n" + missing;
  return lines;
}

std::string first_failure_lines(const Json& run) {
  if (run.at("first_failure").is_null()) return {};
  return "\nfirst failure\n  " + event_line(run.at("first_failure")) + report_lines(run);
}

std::string make_status(const Json& run) {
  std::string lines = state_lines(run) + first_failure_lines(run) + operator_lines(run);
  lines += "\nhistory\n";
  for (const Json& event : run.at("events"))
    lines += "  " + event_line(event);
  return lines;
}

std::string make_watched_status(const Json& run) {
  std::string lines = state_lines(run) + "\nlast events, the newest first\n";
  const Json& events = run.at("events");
  std::size_t shown = 0;
  for (auto event = events.rbegin(); event != events.rend() && shown < kMaxWatchedEvents;
       ++event, ++shown)
    lines += "  " + event_line(*event);
  return lines + first_failure_lines(run) + operator_lines(run);
}

// What `why` says of a run without a first failure. musterd keeps the outcome over a restart, but
// not the events before it.
std::string why_without_failure(const Json& run) {
  const std::string id = text(run.at("id"));
  const Json outcome = run.value("outcome", Json());
  if (outcome.is_object() && outcome.value("preempted", false))
    return id + ": nothing has failed: " + text(outcome.at("why")) + "\n";
  if (outcome.is_object() && outcome.at("succeeded") == false) {
    const Json& node = outcome.at("node");
    return id + ": " +
           (node.is_null() ? "the run has failed" : "node " + text(node) + " ended the run") +
           ": " + text(outcome.at("why")) +
           "\n  musterd was started again since then. It does not keep earlier events: something "
           "else may have failed first\n";
  }
  // A musterd that was started again knows the number of restarts, but not what caused them.
  const bool restarted = run.at("restarts_used").is_number() && run.at("restarts_used") > 0;
  return id + ": nothing has failed since " +
         (restarted ? "musterd was started" : "the run began") + ". It is " +
         state_and_reason(run) + "\n" + notice_lines(run);
}

// Whether the event says that a worker failed, so that its node's log has more about it.
bool is_of_worker(const Json& event) {
  if (event.at("kind") == "run_failed") return event.at("node").is_string();
  return event.contains("cause") && event.at("cause") == "workers_failed";
}

// The ended run before this one that had the same id. An older musterd does not know it.
std::string previous_lines(const Json& run) {
  const Json previous = run.value("previous", Json());
  if (previous.is_null()) return {};
  std::string lines = "\nthe run before, of the same id\n  " + text(previous.at("state"));
  if (previous.at("ended_seconds").is_number())
    lines +=
        " " + duration_of(previous.at("ended_seconds")) + " ago, " + text(previous.at("ended_at"));
  if (const std::string reason = text(previous.at("reason")); !reason.empty())
    lines += ": " + reason;
  lines += "\n";
  const Json& failure = previous.at("first_failure");
  if (!failure.is_null())
    lines += "  first failure: " + text(failure.at("at")) + "  " + node_label(failure) + "  " +
             text(failure.at("text")) + "\n";
  return lines + report_lines(previous);
}

std::string why_with_failure(const Json& run) {
  const Json& failure = run.at("first_failure");
  const std::string node = node_label(failure);
  std::string lines =
      text(run.at("id")) + ": " +
      (node.empty() ? "no node failed: the run was ended" : node + " failed first") + "\n";
  lines += "  " + text(failure.at("at")) + ", round " + number(failure.at("round")) + ": " +
           text(failure.at("text")) + "\n";
  const std::string report = report_lines(run);
  // The failure of an earlier host, which was recorded, has no number among this host's events.
  const std::int64_t first = integer(failure.at("number"));
  lines += report + "\nnow\n  " + state_and_reason(run) + "\n";
  lines += budget_lines(run);
  lines += notice_lines(run);
  if (const std::string missing = missing_lines(run); !missing.empty()) lines += missing;
  std::string events;
  for (const Json& event : run.at("events"))
    if (integer(event.at("number")) > first) events += "  " + event_line(event);
  if (!events.empty())
    lines += std::string("\nwhat followed") +
             (first == 0 ? " since the host was started again" : "") + "\n" + events;
  if (report.empty() && is_of_worker(failure))
    lines +=
        "\nThe worker's own words are not known here: they are in that node's logs, and in the "
        "failure summary at the end of what muster has printed there\n";
  return lines;
}

std::string make_why(const Json& run) {
  const bool failed = !run.at("first_failure").is_null();
  return (failed ? why_with_failure(run) : why_without_failure(run)) + previous_lines(run);
}

// The states of a node's workers, from its report: "7 running, 1 failed".
std::string workers_of(const Json& node) {
  if (!node.contains("report") || node.at("report").is_null()) return "-";
  std::map<std::string, int> counts;
  for (const Json& worker : node.at("report").at("workers"))
    ++counts[text(worker.at("state"))];
  std::string all;
  for (const auto& [state, count] : counts)
    all += (all.empty() ? "" : ", ") + std::to_string(count) + " " + state;
  return all.empty() ? "-" : all;
}

// The smallest step that the node's workers report.
std::string step_of(const Json& node) {
  if (!node.contains("report") || node.at("report").is_null()) return "-";
  std::optional<std::int64_t> least;
  for (const Json& worker : node.at("report").at("workers"))
    if (worker.at("step").is_number_integer())
      least = std::min(least.value_or(std::numeric_limits<std::int64_t>::max()),
                       integer(worker.at("step")));
  return least ? std::to_string(*least) : "-";
}

std::string failure_of(const Json& node) {
  if (!node.contains("report") || node.at("report").is_null()) return "-";
  const Json& failure = node.at("report").at("failure");
  if (failure.is_null()) return "-";
  return "rank " + number(failure.at("rank")) + " " + text(failure.at("exit"));
}

std::string starts_of(const Json& node) {
  if (!node.contains("report") || node.at("report").is_null()) return "-";
  return number(node.at("report").at("starts"));
}

std::string make_nodes(const Json& json) {
  std::vector<Row> rows{{"NODE", "RANKS", "STATE", "KIND", "LAST HEARD", "WORKERS", "STARTS",
                         "STEP", "LAST FAILURE", "STRIKES", "ADDRESS", "AGENT PID", "NAME"}};
  for (const Json& node : json.at("nodes")) {
    const auto first = rank_number(node.at("first_rank"));
    const auto count = rank_number(node.at("local_world_size"));
    std::string ranks = count ? std::to_string(*count) + " workers" : "-";
    if (first && count) {
      const int last = *first + *count - 1;
      ranks = std::to_string(*first) + (last > *first ? "-" + std::to_string(last) : "");
    }
    std::string state = text(node.at("state"));
    if (node.at("absent_seconds").is_number())
      state += " for " + duration_of(node.at("absent_seconds"));
    // The state of a node outside of the rounds already says that it is kept out.
    const bool kept_out = node.contains("kept_out") && node.at("kept_out").is_string();
    if (kept_out && node.at("state") != "kept_out") state += ", " + text(node.at("kept_out"));
    if (node.contains("notice") && node.at("notice").is_object())
      state += ", goes in " + duration_of(node.at("notice").at("seconds"));
    if (node.contains("saved") && node.at("saved").is_boolean())
      state += node.at("saved").get<bool>() ? ", has saved" : ", has not saved yet";
    const std::string strikes = node.contains("strikes") ? strikes_text(node.at("strikes")) : "-";
    rows.push_back({number(node.at("group_rank")), ranks, state, text(node.at("kind")),
                    duration_of(node.at("silent_seconds")), workers_of(node), starts_of(node),
                    step_of(node), failure_of(node), strikes, text(node.at("address")),
                    number(node.at("pid")), text(node.at("name"))});
  }
  const auto by_rank = [](const Row& a, const Row& b) {
    const auto key = [](const Row& row) {
      return row[0] == "-" ? std::pair(1, 0) : std::pair(0, std::stoi(row[0]));
    };
    return key(a) < key(b);
  };
  if (rows.size() == 1)
    return "no node is in this run now; `musterctl status` and `musterctl why` show what it was\n";
  std::stable_sort(rows.begin() + 1, rows.end(), by_rank);
  std::string table = table_text(rows);
  const auto total = count(json.at("total"));
  if (total > rows.size() - 1)
    table += std::to_string(rows.size() - 1) + " of " + std::to_string(total) + " nodes\n";
  return table;
}

// The only place where exceptions of the JSON library are caught.
template <typename Make>
auto convert_json(std::string_view json, const Make& make)
    -> boost::system::result<decltype(make(Json())), TextError> {
  const Json parsed = parse_json(json);
  if (parsed.is_discarded()) return TextError{kNotMusterdsAnswer};
  try {
    return {boost::system::in_place_value, make(parsed)};
  } catch (const std::exception&) {
    return TextError{kNotMusterdsAnswer};
  }
}

}  // namespace

std::string safe(std::string_view outside) {
  return printable_text(outside, kMaxShownBytes);
}

std::string table_text(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], std::min(row[i].size(), kMaxColumnWidth));
    }
  std::string lines;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      lines += row[i];
      if (i + 1 < row.size())
        lines.append(std::max(widths[i], row[i].size()) - row[i].size() + 2, ' ');
    }
    lines += "\n";
  }
  return lines;
}

std::string duration_text(double seconds) {
  char shown[64];
  if (seconds < 60) {
    std::snprintf(shown, sizeof shown, "%.1f s", seconds);
    return shown;
  }
  const auto whole = static_cast<long long>(std::min(seconds, 1e12));
  if (whole < 3600)
    std::snprintf(shown, sizeof shown, "%lld min %lld s", whole / 60, whole % 60);
  else if (whole < 86400)
    std::snprintf(shown, sizeof shown, "%lld h %lld min", whole / 3600, whole % 3600 / 60);
  else
    std::snprintf(shown, sizeof shown, "%lld d %lld h", whole / 86400, whole % 86400 / 3600);
  return shown;
}

Text runs_text(std::string_view json) {
  return convert_json(json, make_runs);
}
boost::system::result<OnlyRun, TextError> only_run(std::string_view json) {
  return convert_json(json, [](const Json& answer) {
    // An ended run is meant if it is the only one: a living one is what people look for.
    const auto& runs = answer.at("runs");
    OnlyRun only{.total = count(answer.at("total"))};
    const auto living =
        std::count_if(runs.begin(), runs.end(), [](const Json& run) { return !has_ended(run); });
    if (living == 1 && only.total == runs.size()) only.total = 1;
    for (const Json& run : runs)
      if (only.total == 1 && (living == 0 || !has_ended(run)))
        only.id = run.at("id").get<std::string>();
    return only;
  });
}
Text run_words(std::string_view json) {
  return convert_json(json,
                      [](const Json& answer) { return plain_words(answer.at("runs"), "id"); });
}
Text node_words(std::string_view json) {
  return convert_json(json,
                      [](const Json& answer) { return plain_words(answer.at("nodes"), "name"); });
}
Text status_text(std::string_view json) {
  return convert_json(json, make_status);
}
Text watched_status_text(std::string_view json) {
  return convert_json(json, make_watched_status);
}
Text why_text(std::string_view json) {
  return convert_json(json, make_why);
}
Text nodes_text(std::string_view json) {
  return convert_json(json, make_nodes);
}

Text done_text(const std::string& begin, std::string_view json) {
  return convert_json(json, [&](const Json& done) {
    std::string lines = begin;
    const std::string said = done.value("text", std::string());
    for (std::size_t at = 0; at <= said.size();) {
      const std::size_t end = std::min(said.find('\n', at), said.size());
      lines += safe(std::string_view(said).substr(at, end - at)) + "\n";
      at = end + 1;
    }
    return lines;
  });
}

Text login_path(std::string_view json) {
  return convert_json(json,
                      [](const Json& link) { return safe(link.at("path").get<std::string>()); });
}

std::optional<std::string> musterd_error(std::string_view json) {
  const auto message = convert_json(json, [](const Json& error) {
    return safe(error.at("error").at("message").get<std::string>());
  });
  if (!message) return std::nullopt;
  return *message;
}

std::string error_text(const HttpAnswer& answer) {
  if (answer.token_refused)
    return "musterd refuses the token: the file of --rdzv-token-file or MUSTER_RDZV_TOKEN_FILE has "
           "another token than musterd's";
  return musterd_error(answer.body).value_or(safe(answer.body.substr(0, 200)));
}

}  // namespace muster::ctl
