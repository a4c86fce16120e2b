#include "launcher/plan_text.h"

#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "agent/core/log_plan.h"
#include "agent/core/numa_plan.h"
#include "agent/core/signal_name.h"
#include "agent/core/worker_command.h"
#include "agent/core/worker_env.h"
#include "base/python_text.h"
#include "base/seconds_text.h"
#include "launcher/python_command.h"
#include "rendezvous/access/tls_allow.h"

namespace muster {
namespace {

/// For what the nodes agree on when they have met.
constexpr const char* kFromRendezvous = "<from the rendezvous>";

std::string in_quotes(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string text = "'";
  for (const char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void append_row(std::string& out, std::string_view name, std::string_view value) {
  constexpr std::size_t kValueColumn = 16;
  out.append("  ").append(name);
  out.append(kValueColumn > name.size() + 2 ? kValueColumn - name.size() - 2 : 1, ' ');
  out.append(value).append("\n");
}

std::string rendezvous_text(const AgentOptions& options) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  if (rendezvous.standalone) return "this node alone, on a free port";
  if (rendezvous.backend == RendezvousBackend::Static)
    return "static at " + rendezvous.endpoint + ", this is node " +
           std::to_string(rendezvous.node_rank);
  if (rendezvous.backend == RendezvousBackend::Etcd)
    return "through etcd at " + rendezvous.endpoint + ", keys under " + rendezvous.etcd.prefix;
  return "c10d at " + rendezvous.endpoint;
}

std::string signals_text(const std::vector<int>& signals) {
  std::string text;
  for (const int number : signals) {
    const std::string name = signal_name(number);
    text.append(text.empty() ? "" : " ").append(name.empty() ? std::to_string(number) : name);
  }
  return text.empty() ? "none" : text;
}

std::string notice_signals_text(const std::vector<NoticeSignal>& signals) {
  std::string text;
  for (const NoticeSignal& notice : signals)
    text.append(text.empty() ? "" : " ")
        .append(signals_text({notice.number}))
        .append(" (" + seconds_text(notice.left) + ")");
  return text;
}

std::string logs_text(const LogOptions& log) {
  if (log.specs) return "as the plug-in " + log.specs->name + " lays them out (--logs-specs)";
  if (log.discard) return "none";
  return log.dir.empty() ? "a temporary directory" : log.dir;
}

AttemptLogPlan plan_files(const AgentOptions& options) {
  if (options.log.specs) {
    const std::string chosen = "<chosen by the plug-in " + options.log.specs->name + ">";
    const StreamPlan stream{StreamTarget::File, chosen, false};
    AttemptLogPlan plan;
    for (int i = 0; i < options.local_world_size; ++i)
      plan.workers.push_back(
          {.local_rank = {i}, .dir = {}, .error_file = chosen, .out = stream, .err = stream});
    return plan;
  }
  const std::string base = options.log.dir.empty() ? "<temporary directory>" : options.log.dir;
  return plan_logs(options, {.attempt_dir = base + "/" + run_dir_name(options.run_id, "<unique>") +
                                            "/" + attempt_dir_name(0, {})});
}

// The variables that the worker gets and muster does not have, or has with another value.
std::map<std::string, std::string> additions(const std::vector<std::string>& inherited,
                                             const std::vector<std::string>& environment,
                                             bool meets_others) {
  const std::set<std::string> ours(inherited.begin(), inherited.end());
  std::map<std::string, std::string> added;
  for (const std::string& variable : environment) {
    const std::size_t equals = variable.find('=');
    if (!ours.contains(variable))
      added.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  added["MASTER_PORT"] = "<chosen at the start>";
  added["MUSTER_JOB"] = "<chosen at the start>";
  if (meets_others)
    for (const char* name : {"GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "RANK", "ROLE_RANK",
                             "ROLE_WORLD_SIZE", "WORLD_SIZE"})
      added[name] = kFromRendezvous;
  // One that was set before stays as it is.
  if (const auto node = added.find("NODE_RANK"); meets_others && node != added.end())
    node->second = kFromRendezvous;
  return added;
}

std::string file_of(const StreamPlan& stream) {
  switch (stream.target) {
    case StreamTarget::File:
      return stream.file;
    case StreamTarget::Discard:
      return "/dev/null";
    case StreamTarget::Inherit:
    case StreamTarget::Tap:
      break;
  }
  return {};
}

std::string stream_text(const StreamPlan& stream, bool is_teed, bool is_shown) {
  const std::string file = file_of(stream);
  if (file.empty()) return is_shown ? "the console" : "nowhere (--local-ranks-filter)";
  return is_teed && is_shown ? file + ", and the console" : file;
}

/// Quotes the words as one line that a POSIX shell splits into the same words.
std::string shell_quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text.append(text.empty() ? "" : " ").append(in_quotes(word));
  return text;
}

// With --run-path, one word of the command is the whole text of run_path.py: a short description
// replaces it.
std::string command_text(const AgentOptions& options, std::vector<std::string> words) {
  if (options.runs_path && words.size() > kRunPathScriptAt)
    words[kRunPathScriptAt - 1] = "(muster's program that runs the script)";
  return shell_quoted(words);
}

void append_rank(std::string& out, const AgentOptions& options, const WorkerLogPlan& plan,
                 const std::map<std::string, std::string>& environment) {
  const LogOptions& log = options.log;
  const int rank = plan.local_rank.value;
  const bool is_shown = log.shows(rank);
  const StreamSet tee = log.specs ? StreamSet{} : log.tee.at(rank);
  out.append("\nrank ").append(options.max_nodes > 1 ? kFromRendezvous : std::to_string(rank));
  out.append(" (local rank ").append(std::to_string(rank)).append(")\n");
  append_row(out, "command", command_text(options, worker_command(options, plan.local_rank)));
  append_row(out, "stdout", stream_text(plan.out, tee.out, is_shown));
  append_row(out, "stderr", stream_text(plan.err, tee.err, is_shown));
  if (!plan.error_file.empty()) append_row(out, "error file", plan.error_file);
  if (!options.cpus.empty())
    append_row(out, "CPUs", cpu_list(options.cpus[static_cast<std::size_t>(rank)]));
  std::string_view name = "environment";
  for (const auto& [variable, value] : environment) {
    append_row(out, name, variable + "=" + (value.empty() ? value : in_quotes(value)));
    name = "";
  }
}

// The certificates that a rendezvous on this node accepts.
std::string names_text(const TlsAllow& allow) {
  std::string text;
  for (const TlsAllow::Rule& rule : allow.rules()) {
    if (rule.any_name) return "every certificate of the CA";
    for (const std::string& name : rule.names)
      text.append(text.empty() ? "certificates of " : ", ").append(name);
  }
  return text;
}

std::string launch_field(std::string_view name, const std::string& value) {
  constexpr std::size_t kNameWidth = 25;  // torch/distributed/launcher/api.py, 2.13.
  std::string line = "  ";
  line.append(name).append(kNameWidth - name.size(), ' ');
  return line.append(": ").append(value);
}

std::string list_text(const std::vector<std::string>& words) {
  std::string text = "[";
  for (const std::string& word : words)
    text.append(text.size() == 1 ? "" : ", ").append(python_repr(word));
  return text + "]";
}

std::string conf_text(const RendezvousOptions& rendezvous) {
  std::string text = "{";
  for (const auto& [key, value] : rendezvous.conf)
    text.append(text.size() == 1 ? "" : ", ").append(python_repr(key) + ": " + python_repr(value));
  return text + "}";
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string restarts_text(const AgentOptions& options) {
  std::string text = std::to_string(options.max_restarts);
  const RestartPolicy& policy = options.restart_policy;
  if (!policy.on) return text;
  if (policy.hangs) text += ", and " + std::to_string(*policy.hangs) + " for hangs";
  if (policy.nodes) text += ", and " + std::to_string(*policy.nodes) + " for lost nodes";
  return text + "; an attempt without progress counts double";
}

}  // namespace

std::string dry_run_text(const AgentOptions& options, const std::vector<std::string>& inherited,
                         const std::vector<std::string>& cluster) {
  const std::string nodes =
      options.min_nodes == options.max_nodes
          ? std::to_string(options.min_nodes)
          : std::to_string(options.min_nodes) + " to " + std::to_string(options.max_nodes);
  std::string text = "Nothing is started (--dry-run). muster would start:\n\n";
  append_row(
      text, "workers",
      std::to_string(options.local_world_size) + " on this node, role " + in_quotes(options.role));
  append_row(text, "nodes", nodes);
  for (const std::string& choice : cluster)
    append_row(text, choice == cluster.front() ? "cluster" : "", choice);
  append_row(text, "rendezvous", rendezvous_text(options));
  for (const auto& [key, value] : options.rendezvous.conf)
    append_row(text, "", std::string(key).append("=").append(value));
  if (!options.rendezvous.token_file.empty())
    append_row(text, "token", "in " + options.rendezvous.token_file);
  if (!options.rendezvous.tls_ca.empty())
    append_row(text, "TLS", "hosts with a certificate of " + options.rendezvous.tls_ca);
  if (!options.rendezvous.tls_certificate.empty())
    append_row(text, "", "as " + options.rendezvous.tls_certificate);
  if (options.rendezvous.tls_allow)
    append_row(text, "", "lets in " + names_text(*options.rendezvous.tls_allow));
  if (options.rendezvous.etcd.speaks_tls) append_row(text, "TLS to etcd", "yes");
  append_row(text, "run id", options.run_id);
  append_row(text, "restarts", restarts_text(options));
  if (!options.progress_file.empty()) append_row(text, "progress", options.progress_file);
  append_row(text, "signals", signals_text(options.signals_to_handle));
  append_row(text, "passed on", signals_text(options.signals_to_forward));
  if (!options.notice_signals.empty())
    append_row(text, "notices", notice_signals_text(options.notice_signals));
  if (!options.notice_from.empty())
    append_row(text, "notice from",
               options.notice_from + ", " + seconds_text(options.notice_left) +
                   " if it ends and names no time");
  append_row(text, "to end", seconds_text(options.shutdown_timeout) + " from SIGTERM to SIGKILL");
  append_row(text, "leftovers", seconds_text(options.leftover_timeout) + " after success");
  append_row(text, "logs", logs_text(options.log));
  const int workers = options.local_world_size;
  const std::string& address = options.rendezvous.local_addr;
  const RoundFacts round{.ranks = {.world_size = workers, .role_world_size = workers},
                         .master_addr = address.empty() ? "127.0.0.1" : address};
  for (const WorkerLogPlan& plan : plan_files(options).workers) {
    const auto environment = worker_env(inherited_by_workers(inherited, options), options, round,
                                        {plan.local_rank, plan.error_file, "unknown"});
    append_rank(text, options, plan, additions(inherited, environment, options.max_nodes > 1));
  }
  return text;
}

std::vector<std::string> launch_text(const Flags& flags, const AgentOptions& options) {
  const RendezvousOptions& rendezvous = options.rendezvous;
  return {
      "Starting elastic_operator with launch configs:",
      launch_field("entrypoint", options.entry_point),
      launch_field("min_nodes", std::to_string(options.min_nodes)),
      launch_field("max_nodes", std::to_string(options.max_nodes)),
      launch_field("nproc_per_node", std::to_string(options.local_world_size)),
      launch_field("run_id", options.run_id),
      launch_field("rdzv_backend", rendezvous.backend_name),
      launch_field("rdzv_endpoint", rendezvous.endpoint),
      launch_field("rdzv_configs", conf_text(rendezvous)),
      launch_field("max_restarts", std::to_string(options.max_restarts)),
      launch_field("monitor_interval", number_text(flags.monitor_interval)),
      launch_field("log_dir", flags.log_dir.empty() ? "None" : flags.log_dir),
      launch_field("metrics_cfg", "{}"),
      launch_field("event_log_handler", flags.event_log_handler),
      launch_field("numa_options", flags.numa_binding.value_or("None")),
      launch_field("signals_to_handle", options.signals_to_handle_text),
      launch_field("duplicate_stdout_filters", list_text(options.log.duplicate_stdout_filters)),
      launch_field("duplicate_stderr_filters", list_text(options.log.duplicate_stderr_filters)),
  };
}

}  // namespace muster
