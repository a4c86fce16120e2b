// The command line as typed fields, before any value is resolved or checked.
//
// Pure. option_table.cc maps the options to the fields; launch_plan.h turns the fields into a plan
// and checks ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/option_table.h"

namespace muster {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Cluster: --cluster has taken the value from the scheduler.
enum class Source : std::uint8_t { Default, Cluster, Variable, CommandLine };

struct Flags {
  // torchrun's options.
  std::string nnodes;
  std::string nproc_per_node;
  std::string rdzv_backend;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string rdzv_conf;
  bool standalone = false;
  std::int64_t max_restarts = 0;
  double monitor_interval = 0;
  std::string start_method;
  std::string event_log_handler;
  std::string role;
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string log_dir;
  std::string redirects;
  std::string tee;
  std::string log_line_prefix_template;
  std::string local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  std::int64_t node_rank = 0;
  std::string master_addr;
  std::optional<std::int64_t> master_port;
  std::string local_addr;
  std::optional<std::string> logs_specs;
  std::optional<std::string> numa_binding;
  std::string signals_to_handle;
  std::optional<std::int64_t> shutdown_timeout;
  bool virtual_local_rank = false;
  // Behave as python -m torch.distributed.launch. With use_env, the script gets no --local-rank.
  bool launch_module = false;
  bool use_env = false;
  // muster's own options.
  std::optional<std::string> cluster;  // auto, or a scheduler.
  std::optional<std::string> hosts;
  std::optional<std::string> hostfile;
  std::vector<std::string> exported;  // --export
  bool dry_run = false;
  bool strict = false;
  std::string capture_stderr;  // auto, always, never
  std::string failure_report;
  std::string exit_code;  // torchrun, propagate
  std::optional<std::string> omp;
  bool warm = false;
  std::optional<std::string> warm_modules;
  std::optional<std::string> log_max_bytes;
  std::string log_on_full;  // drop, fail
  std::optional<double> hang_timeout;
  std::optional<std::string> restart_policy;
  std::optional<std::string> progress_file;
  std::optional<double> leftover_timeout;
  std::string signal_to;  // leader, group
  std::optional<std::string> signals_to_forward;
  std::optional<std::string> notice_signals;
  std::optional<std::string> notice_from;
  std::optional<double> notice_seconds;
  bool spare = false;
  std::optional<std::string> scale_policy;  // now, at-restart, never
  std::optional<std::string> on_notice;     // auto, stop, shrink
  std::optional<std::string> rdzv_token_file;
  std::optional<std::string> rdzv_tls_ca;
  std::optional<std::string> rdzv_tls_cert;
  std::optional<std::string> rdzv_tls_key;
  std::optional<std::string> rdzv_tls_allow;
  std::optional<std::string> c10d_allow;
  std::optional<std::string> http;
  std::string on_agent_death;
  bool preflight = false;

  std::string script;
  std::vector<std::string> script_arguments;

  struct Given {
    Source source = Source::Default;
    // As typed on the command line, such as "--local_rank". From a cluster: the value's source.
    std::string spelled;
  };
  std::vector<Given> given = std::vector<Given>(all_options().size());  // By option_index().

  Source source(const OptionField& field) const { return given[option_index(field)].source; }
  bool on_command_line(const OptionField& field) const {
    return source(field) == Source::CommandLine;
  }
  /// The name for messages: the option as the user typed it, or the variable that gave the value.
  std::string name_of(const OptionField& field) const;
};

/// The name that muster was called with, and the behaviour that it selects.
struct ProgramName {
  std::string shown;           // The file name, such as "torchrun", for usage and errors.
  bool launch_module = false;  // muster-launch: behave as python -m torch.distributed.launch.
};
ProgramName program_name(std::string_view argv0);

}  // namespace muster
