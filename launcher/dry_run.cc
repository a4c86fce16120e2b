#include "launcher/dry_run.h"

#include <algorithm>
#include <string_view>

#include "agent/core/signal_name.h"
#include "launcher/run_path.h"
#include "rendezvous/core/seconds_text.h"
#include "rendezvous/core/tls_allow.h"

namespace muster {
namespace {

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

std::string signals_text(const AgentOptions& options) {
  std::string text;
  for (const int number : options.signals_to_handle) {
    const std::string name = signal_name(number);
    text.append(text.empty() ? "" : " ").append(name.empty() ? std::to_string(number) : name);
  }
  return text.empty() ? "none" : text;
}

std::string logs_text(const LogOptions& log) {
  if (log.specs) return "as the plug-in " + log.specs->name + " lays them out (--logs-specs)";
  if (log.discard) return "none";
  return log.dir.empty() ? "a temporary directory" : log.dir;
}

std::string stream_text(const std::string& file, bool is_teed, bool is_shown) {
  if (file.empty()) return is_shown ? "the console" : "nowhere (--local-ranks-filter)";
  return is_teed && is_shown ? file + ", and the console" : file;
}

// The program that --run-path gives to Python is a page of muster's own.
std::string command_text(const AgentOptions& options, std::vector<std::string> words) {
  if (options.runs_path && words.size() > kRunPathScriptAt)
    words[kRunPathScriptAt - 1] = "(muster's program that runs the script)";
  return shell_quoted(words);
}

void append_rank(std::string& out, const AgentOptions& options, const RankPlan& rank) {
  const LogOptions& log = options.log;
  const bool is_shown =
      log.local_ranks_filter.empty() || log.local_ranks_filter.contains(rank.local_rank);
  const StreamSet tee = log.specs ? StreamSet{} : log.tee.at(rank.local_rank);
  out.append("\nrank ").append(std::to_string(rank.global_rank));
  out.append(" (local rank ").append(std::to_string(rank.local_rank)).append(")\n");
  append_row(out, "command", command_text(options, rank.command));
  append_row(out, "stdout", stream_text(rank.stdout_file, tee.out, is_shown));
  append_row(out, "stderr", stream_text(rank.stderr_file, tee.err, is_shown));
  if (!rank.error_file.empty()) append_row(out, "error file", rank.error_file);
  if (!rank.cpus.empty()) append_row(out, "CPUs", rank.cpus);
  std::string_view name = "environment";
  for (const auto& [variable, value] : rank.environment) {
    append_row(out, name, variable + "=" + (value.empty() ? value : in_quotes(value)));
    name = "";
  }
}

// The certificates that a rendezvous here lets in.
std::string names_text(const TlsAllow& allow) {
  std::string text;
  for (const TlsAllow::Rule& rule : allow.rules()) {
    if (rule.any_name) return "every certificate of the CA";
    for (const std::string& name : rule.names)
      text.append(text.empty() ? "certificates of " : ", ").append(name);
  }
  return text;
}

}  // namespace

std::string shell_quoted(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words)
    text.append(text.empty() ? "" : " ").append(in_quotes(word));
  return text;
}

std::string dry_run_text(const AgentOptions& options, std::span<const RankPlan> ranks) {
  const std::string nodes =
      options.min_nodes == options.max_nodes
          ? std::to_string(options.min_nodes)
          : std::to_string(options.min_nodes) + " to " + std::to_string(options.max_nodes);
  std::string text = "Nothing is started (--dry-run). muster would start:\n\n";
  append_row(
      text, "workers",
      std::to_string(options.local_world_size) + " on this node, role " + in_quotes(options.role));
  append_row(text, "nodes", nodes);
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
  append_row(text, "restarts", std::to_string(options.max_restarts));
  append_row(text, "signals", signals_text(options));
  append_row(text, "to end", seconds_text(options.shutdown_timeout) + " from SIGTERM to SIGKILL");
  append_row(text, "logs", logs_text(options.log));
  for (const RankPlan& rank : ranks)
    append_rank(text, options, rank);
  return text;
}

}  // namespace muster
