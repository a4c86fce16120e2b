#include "agent/core/log_plan.h"

#include <algorithm>
#include <initializer_list>
#include <map>

namespace muster {
namespace {

// A file name may have 255 bytes. The suffix, and what other programs append to it, need some.
constexpr std::size_t kMaxRunIdBytes = 200;
constexpr std::string_view kDefaultPrefix = "[${role_name}${local_rank}]:";
constexpr std::string_view kDevNull = "/dev/null";

StreamPlan to_file(std::string file, bool tee) {
  return {StreamTarget::File, std::move(file), tee};
}

// A stream that is not redirected. Its tail is kept only for the failure report.
StreamPlan unredirected(bool shown, bool keep_tail) {
  if (keep_tail) return {StreamTarget::Tap, "", shown};
  return {shown ? StreamTarget::Inherit : StreamTarget::Discard, "", false};
}

bool keeps_stderr_tail(const LogOptions& log) {
  return log.capture_stderr != CaptureStderr::Never;
}

bool is_terminal_tap(const LogContext& context, const StreamPlan& err) {
  return context.stderr_is_terminal && err.target == StreamTarget::Tap && err.to_console;
}

LinePrefix prefix_of(const AgentOptions& options, const LogContext& context, LocalRank local_rank) {
  const int rank = context.base_global_rank.value + local_rank.value;
  // torchrun has all of these names but ${host} and ${time}.
  return LinePrefix::from_template(options.log.prefix_template,
                                   {{"role_name", options.role},
                                    {"rank", std::to_string(rank)},
                                    {"local_rank", std::to_string(local_rank.value)},
                                    {"hostname", context.host},
                                    {"host", context.host}});
}

// With /dev/null, -r and -t have no effect, as under torchrun.
bool has_dir(const LogOptions& log, const LogContext& context) {
  return !log.discard && !context.attempt_dir.empty();
}

WorkerLogPlan plan_worker(const AgentOptions& options, const LogContext& context,
                          LocalRank local_rank) {
  const LogOptions& log = options.log;
  const bool shown = log.shows(local_rank.value);
  WorkerLogPlan plan;
  plan.local_rank = local_rank;
  plan.prefix = prefix_of(options, context, local_rank);

  StreamSet files;
  StreamSet tee;
  if (has_dir(log, context)) {
    plan.dir = context.attempt_dir + "/" + std::to_string(local_rank.value);
    plan.error_file = plan.dir + "/error.json";
    tee = log.tee.at(local_rank.value);
    const StreamSet redirects = log.redirects.at(local_rank.value);
    files = {redirects.out || tee.out, redirects.err || tee.err};
  }

  const bool keep_tail = keeps_stderr_tail(log);
  plan.err = files.err ? to_file(plan.dir + "/stderr.log", tee.err && shown)
                       : unredirected(shown, keep_tail);
  plan.one_tap =
      context.console_is_one_file && shown && !files.out && plan.err.target == StreamTarget::Tap;
  plan.out = files.out ? to_file(plan.dir + "/stdout.log", tee.out && shown)
                       : unredirected(shown, plan.one_tap);
  plan.terminal_tap = is_terminal_tap(context, plan.err);
  return plan;
}

const std::string& path_of(const std::map<int, std::string>& paths, LocalRank rank) {
  static const std::string none;
  const auto found = paths.find(rank.value);
  return found == paths.end() ? none : found->second;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The folder for the worker's stack dumps: the folder of its other files.
std::string folder_of_first(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths)
    if (!path.empty()) return folder_of(path);
  return {};
}

WorkerLogPlan plan_worker(const AgentOptions& options, const LogContext& context,
                          const LogsDest& dest, LocalRank local_rank) {
  WorkerLogPlan plan;
  plan.local_rank = local_rank;
  plan.prefix = prefix_of(options, context, local_rank);
  plan.environment = dest.environment.at(static_cast<std::size_t>(local_rank.value));
  plan.error_file = path_of(dest.error_files, local_rank);
  if (plan.error_file == kDevNull) plan.error_file.clear();

  const auto stream = [&](const std::string& path, const std::string& tee, bool keep_tail) {
    if (path == kDevNull) return StreamPlan{StreamTarget::Discard, "", false};
    return path.empty() ? unredirected(true, keep_tail) : to_file(path, path == tee);
  };
  const std::string& out = path_of(dest.stdouts, local_rank);
  const bool keep_tail = keeps_stderr_tail(options.log);
  plan.err =
      stream(path_of(dest.stderrs, local_rank), path_of(dest.tee_stderrs, local_rank), keep_tail);
  plan.one_tap = context.console_is_one_file && out.empty() && plan.err.target == StreamTarget::Tap;
  plan.out = stream(out, path_of(dest.tee_stdouts, local_rank), plan.one_tap);
  plan.terminal_tap = is_terminal_tap(context, plan.err);
  plan.dir = folder_of_first({plan.error_file, plan.out.file, plan.err.file});
  return plan;
}

}  // namespace

std::string run_dir_name(std::string_view run_id, std::string_view suffix) {
  std::size_t size = std::min(run_id.size(), kMaxRunIdBytes);
  const auto continues_character = [&](std::size_t i) { return (run_id[i] & 0xc0) == 0x80; };
  while (size < run_id.size() && size > 0 && continues_character(size))
    --size;  // Does not cut a UTF-8 character in the middle.
  std::string name(run_id.substr(0, size));
  for (char& c : name)
    if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '_';
  return name.append("_").append(suffix);
}

std::string attempt_dir_name(int restart_count, const std::set<std::string>& existing) {
  const std::string first = "attempt_" + std::to_string(restart_count);
  std::string name = first;
  for (int k = 1; existing.contains(name); ++k)
    name = first + "." + std::to_string(k);
  return name;
}

LinePrefix LinePrefix::from_template(std::string_view text, const TemplateValues& values) {
  LinePrefix prefix(std::string{});
  for (const TemplatePiece& piece : parse_template(text.empty() ? kDefaultPrefix : text)) {
    if (piece.name == "time") {
      prefix.pieces_.emplace_back();
    } else {
      const auto value = values.find(piece.name);
      prefix.pieces_.back() += value == values.end() ? piece.text : value->second;
    }
  }
  return prefix;
}

AttemptLogPlan plan_logs(const AgentOptions& options, const LogContext& context) {
  AttemptLogPlan plan;
  const LogOptions& log = options.log;
  if (has_dir(log, context)) {
    plan.directories.push_back(context.attempt_dir);
    if (!log.duplicate_stdout_filters.empty())
      plan.filtered_stdout = context.attempt_dir + "/filtered_stdout.log";
    if (!log.duplicate_stderr_filters.empty())
      plan.filtered_stderr = context.attempt_dir + "/filtered_stderr.log";
  }
  for (int i = 0; i < options.local_world_size; ++i) {
    plan.workers.push_back(plan_worker(options, context, LocalRank{i}));
    if (has_dir(log, context)) plan.directories.push_back(plan.workers.back().dir);
  }
  return plan;
}

AttemptLogPlan plan_logs(const AgentOptions& options, const LogContext& context,
                         const LogsDest& dest) {
  AttemptLogPlan plan{.chosen_by_plugin = true};
  if (!options.log.duplicate_stdout_filters.empty()) plan.filtered_stdout = dest.filtered_stdout;
  if (!options.log.duplicate_stderr_filters.empty()) plan.filtered_stderr = dest.filtered_stderr;
  for (int i = 0; i < options.local_world_size; ++i)
    plan.workers.push_back(plan_worker(options, context, dest, LocalRank{i}));
  for (const bool is_stderr : {false, true}) {
    const auto& streams = is_stderr ? dest.stderrs : dest.stdouts;
    for (const auto& [rank, file] : is_stderr ? dest.tee_stderrs : dest.tee_stdouts)
      if (file != path_of(streams, {rank}) && !file.empty() && file != kDevNull)
        plan.more_shown.push_back({{rank}, is_stderr, file, prefix_of(options, context, {rank})});
  }
  return plan;
}

}  // namespace muster
