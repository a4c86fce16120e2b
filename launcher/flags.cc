#include "launcher/flags.h"

#include <utility>

namespace muster {
namespace {

/// Reads settings as the types that their kinds promise; what is not set leaves T's default.
class Reader {
 public:
  explicit Reader(const CommandLine& line) : line_(line) {}

  template <typename T>
  void read(OptionId id, T& field) const {
    if (const auto* value = std::get_if<T>(&line_.at(id).value)) field = *value;
  }
  template <typename T>
  void read(OptionId id, std::optional<T>& field) const {
    if (const auto* value = std::get_if<T>(&line_.at(id).value)) field = *value;
  }

 private:
  const CommandLine& line_;
};

}  // namespace

Flags flags_from(const CommandLine& line, bool launch_module) {
  using enum OptionId;
  Flags flags;
  const Reader reader(line);
  reader.read(Nnodes, flags.nnodes);
  reader.read(NprocPerNode, flags.nproc_per_node);
  reader.read(RdzvBackend, flags.rdzv_backend);
  reader.read(RdzvEndpoint, flags.rdzv_endpoint);
  reader.read(RdzvId, flags.rdzv_id);
  reader.read(RdzvConf, flags.rdzv_conf);
  reader.read(Standalone, flags.standalone);
  reader.read(MaxRestarts, flags.max_restarts);
  reader.read(MonitorInterval, flags.monitor_interval);
  reader.read(StartMethod, flags.start_method);
  reader.read(EventLogHandler, flags.event_log_handler);
  reader.read(Role, flags.role);
  reader.read(Module, flags.module);
  reader.read(NoPython, flags.no_python);
  reader.read(RunPath, flags.run_path);
  reader.read(LogDir, flags.log_dir);
  reader.read(Redirects, flags.redirects);
  reader.read(Tee, flags.tee);
  reader.read(LocalRanksFilter, flags.local_ranks_filter);
  reader.read(DuplicateStdoutFilters, flags.duplicate_stdout_filters);
  reader.read(DuplicateStderrFilters, flags.duplicate_stderr_filters);
  reader.read(NodeRank, flags.node_rank);
  reader.read(MasterAddr, flags.master_addr);
  reader.read(MasterPort, flags.master_port);
  reader.read(LocalAddr, flags.local_addr);
  reader.read(LogsSpecs, flags.logs_specs);
  reader.read(NumaBinding, flags.numa_binding);
  reader.read(SignalsToHandle, flags.signals_to_handle);
  reader.read(ShutdownTimeout, flags.shutdown_timeout);
  reader.read(VirtualLocalRank, flags.virtual_local_rank);
  flags.launch_module = launch_module;
  reader.read(UseEnv, flags.use_env);
  reader.read(DryRun, flags.dry_run);
  reader.read(Strict, flags.strict);
  reader.read(OptionId::CaptureStderr, flags.capture_stderr);
  reader.read(FailureReport, flags.failure_report);
  std::string exit_code;
  reader.read(ExitCode, exit_code);
  flags.propagate_exit_code = exit_code == "propagate";
  reader.read(Omp, flags.omp);
  reader.read(LogMaxBytes, flags.log_max_bytes);
  reader.read(LogOnFull, flags.log_on_full);
  reader.read(HangTimeout, flags.hang_timeout);
  reader.read(OnAgentDeath, flags.on_agent_death);
  reader.read(Spare, flags.spare);
  reader.read(OptionId::ScalePolicy, flags.scale_policy);
  reader.read(OptionId::RdzvTokenFile, flags.rdzv_token_file);
  reader.read(OptionId::RdzvTlsCa, flags.rdzv_tls_ca);
  reader.read(OptionId::RdzvTlsCert, flags.rdzv_tls_cert);
  reader.read(OptionId::RdzvTlsKey, flags.rdzv_tls_key);
  reader.read(OptionId::RdzvTlsAllow, flags.rdzv_tls_allow);
  reader.read(OptionId::C10dAllow, flags.c10d_allow);
  reader.read(OptionId::Http, flags.http);
  reader.read(OptionId::Preflight, flags.preflight);
  flags.script = line.script;
  flags.script_arguments = line.script_arguments;
  for (std::size_t i = 0; i < kOptionCount; ++i)
    flags.given[i] = {line.settings[i].source, line.settings[i].spelled};
  return flags;
}

std::string Flags::name_of(OptionId id) const {
  const Given& how = given[static_cast<std::size_t>(id)];
  const Option& what = option(id);
  if (how.source == Source::Variable) return std::string(what.environment);
  // An abbreviation or a cluster is named as what it was taken for.
  if (how.source == Source::Words && (how.spelled == what.names[0] || how.spelled == what.names[1]))
    return how.spelled;
  return std::string(what.long_name());
}

ProgramName program_name(std::string_view argv0) {
  const auto slash = argv0.rfind('/');
  if (slash != std::string_view::npos) argv0.remove_prefix(slash + 1);
  if (argv0.empty()) argv0 = "muster";
  return {.shown = std::string(argv0), .launch_module = argv0 == "muster-launch"};
}

}  // namespace muster
