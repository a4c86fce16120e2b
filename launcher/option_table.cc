#include "launcher/option_table.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "launcher/flags.h"

namespace muster {
namespace {

using Group = OptionGroup;
using enum OptionOrigin;

constexpr std::string_view kStartMethods[] = {"spawn", "fork", "forkserver"};
constexpr std::string_view kNumaModes[] = {"node", "socket", "exclusive", "core-complex"};
constexpr std::string_view kCaptureModes[] = {"auto", "always", "never"};
constexpr std::string_view kExitCodes[] = {"torchrun", "propagate"};
constexpr std::string_view kScalePolicies[] = {"now", "at-restart", "never"};
constexpr std::string_view kOnNotices[] = {"auto", "stop", "shrink"};
constexpr std::string_view kOnFull[] = {"drop", "fail"};
constexpr std::string_view kOnAgentDeath[] = {"kill"};
constexpr std::string_view kSignalTo[] = {"leader", "group"};
constexpr std::string_view kShells[] = {"bash", "zsh", "fish", "tcsh"};
constexpr std::string_view kTorchrunShells[] = {"bash", "zsh", "tcsh"};
constexpr std::string_view kClusters[] = {"auto", "slurm", "kubernetes", "pbs",
                                          "lsf",  "mpi",   "sagemaker"};
constexpr std::string_view kRecipes[] = {"slurm", "kubernetes", "docker", "systemd"};
constexpr auto kNone = std::nullopt;

// Source of names, kinds, defaults and order: torch/distributed/run.py and launch.py of 2.15.0.
// clang-format would put each value on its own line.
// clang-format off
constexpr auto kTable = std::to_array<Option>({
    {Torchrun, Group::Muster, Prints::Help, {"-h", "--help"}, "", "", kNone, {},
     "Print this text."},
    {Torchrun, Group::Workers, &Flags::nnodes, {"--nnodes"}, "PET_NNODES", "N|MIN:MAX", "1:1", {},
     "Number of nodes, or the fewest and the most for a job that may grow and shrink."},
    {Torchrun, Group::Workers, &Flags::nproc_per_node, {"--nproc-per-node", "--nproc_per_node"},
     "PET_NPROC_PER_NODE", "N", "1", {},
     "Workers on this node: a number; gpu, xpu or cpu for one on each that is visible; auto for "
     "accelerators where there are any and CPUs otherwise; gpu:1,3,5 for one on each of these "
     "GPUs."},
    {Torchrun, Group::Rendezvous, &Flags::rdzv_backend, {"--rdzv-backend", "--rdzv_backend"},
     "PET_RDZV_BACKEND", "NAME", "static", {},
     "How the nodes meet: c10d for several nodes; etcd or etcd-v2 through an etcd; static with fixed "
     "ranks. One node without endpoint and master port meets nobody, as with --standalone."},
    {Torchrun, Group::Rendezvous, &Flags::rdzv_endpoint, {"--rdzv-endpoint", "--rdzv_endpoint"},
     "PET_RDZV_ENDPOINT", "HOST[:PORT]", "", {},
     "Where they meet: the address of the first node, of a musterd, or of an etcd. Without a port it "
     "is 29400 with c10d, 2379 with etcd. An IPv6 address may stand in brackets. Several musterds "
     "or members of an etcd are separated by commas."},
    {Torchrun, Group::Rendezvous, &Flags::rdzv_id, {"--rdzv-id", "--rdzv_id"}, "PET_RDZV_ID", "ID",
     "none", {},
     "Name of the job, the same on all of its nodes."},
    {Torchrun, Group::Rendezvous, &Flags::rdzv_conf, {"--rdzv-conf", "--rdzv_conf"},
     "PET_RDZV_CONF", "KEY=VALUE,...", "", {},
     "Settings of the rendezvous, such as join_timeout=600,last_call_timeout=30. A name that does not "
     "exist prints all names."},
    {Torchrun, Group::Workers, &Flags::standalone, {"--standalone"}, "PET_STANDALONE", "", kNone,
     {},
     "Job of this node alone: muster chooses the port, the backend and the run id."},
    {Torchrun, Group::Failures, &Flags::max_restarts, {"--max-restarts", "--max_restarts"},
     "PET_MAX_RESTARTS", "N", "0", {},
     "How often the workers are started again after one of them fails."},
    {Torchrun, Group::Inert, &Flags::monitor_interval, {"--monitor-interval",
     "--monitor_interval"}, "PET_MONITOR_INTERVAL", "SECONDS", "0.1", {},
     "Checked, but without effect: muster does not poll, it waits for events."},
    {Torchrun, Group::Inert, &Flags::start_method, {"--start-method", "--start_method"},
     "PET_START_METHOD", "METHOD", "spawn", kStartMethods,
     "Accepted with --run-path, which always starts a fresh Python; no effect otherwise."},
    {Torchrun, Group::Logs, &Flags::event_log_handler, {"--event-log-handler",
     "--event_log_handler"}, "PET_EVENT_LOG_HANDLER", "NAME", "null", {},
     "Where the records of the job's events go: null, or console for JSON lines on stderr."},
    {Torchrun, Group::Workers, &Flags::role, {"--role"}, "PET_ROLE", "NAME", "default", {},
     "What these workers are called in prefixes and in ROLE_NAME."},
    {Torchrun, Group::Program, &Flags::module, {"-m", "--module"}, "PET_MODULE", "", kNone,
     {},
     "The script is a module's name, run as python -m does."},
    {Torchrun, Group::Program, &Flags::no_python, {"--no-python", "--no_python"}, "PET_NO_PYTHON",
     "", kNone, {},
     "The script is a program, run without Python."},
    {Torchrun, Group::Program, &Flags::run_path, {"--run-path", "--run_path"}, "PET_RUN_PATH", "",
     kNone, {},
     "Run the script with runpy.run_path in a fresh Python, without stdin; overrides --no-python."},
    {Torchrun, Group::Logs, &Flags::log_dir, {"--log-dir", "--log_dir"}, "PET_LOG_DIR", "DIR",
     kNone, {},
     "Where the log files of -r and -t go; without it a temporary directory."},
    {Torchrun, Group::Logs, &Flags::redirects, {"-r", "--redirects"}, "PET_REDIRECTS", "STREAMS",
     "0", {},
     "Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both, or for each local "
     "rank, as in 0:3,1:2."},
    {Torchrun, Group::Logs, &Flags::tee, {"-t", "--tee"}, "PET_TEE", "STREAMS", "0", {},
     "Streams that go to log files and, with a prefix, to the console; written as for -r."},
    {Torchrun, Group::Logs, &Flags::log_line_prefix_template, {"--log-line-prefix-template",
     "--log_line_prefix_template"}, "PET_LOG_LINE_PREFIX_TEMPLATE", "TEMPLATE", "", {},
     "What teed lines begin with on the console: text with ${role_name}, ${rank}, ${local_rank}, "
     "${hostname}, ${host} and ${time}. Without it TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, or "
     "[${role_name}${local_rank}]: when that is not set, either."},
    {Torchrun, Group::Logs, &Flags::local_ranks_filter, {"--local-ranks-filter",
     "--local_ranks_filter"}, "PET_LOCAL_RANKS_FILTER", "RANKS", "", {},
     "Local ranks that may write to the console, as in 0,2; the files are not affected."},
    {Torchrun, Group::Logs, &Flags::duplicate_stdout_filters, {"--duplicate-stdout-filters",
     "--duplicate_stdout_filters"}, "PET_DUPLICATE_STDOUT_FILTERS", "TEXT,...", "", {},
     "Copy the lines of teed stdout that contain one of these texts to filtered_stdout.log; two "
     "commas stand for one inside a text."},
    {Torchrun, Group::Logs, &Flags::duplicate_stderr_filters, {"--duplicate-stderr-filters",
     "--duplicate_stderr_filters"}, "PET_DUPLICATE_STDERR_FILTERS", "TEXT,...", "", {},
     "The same for stderr and filtered_stderr.log."},
    {Torchrun, Group::FixedRanks, &Flags::node_rank, {"--node-rank", "--node_rank"},
     "PET_NODE_RANK", "N", "0", {},
     "This node's rank."},
    {Torchrun, Group::FixedRanks, &Flags::master_addr, {"--master-addr", "--master_addr"},
     "PET_MASTER_ADDR", "HOST", "127.0.0.1", {},
     "Address of the node with rank 0."},
    {Torchrun, Group::FixedRanks, &Flags::master_port, {"--master-port", "--master_port"},
     "PET_MASTER_PORT", "PORT", kNone, {},
     "Port on that node, 29500 by default. On one node, too, it selects --rdzv-backend static."},
    {Torchrun, Group::Rendezvous, &Flags::local_addr, {"--local-addr", "--local_addr"},
     "PET_LOCAL_ADDR", "HOST", kNone, {},
     "The address by which the other nodes reach this one; without it the address from which this node "
     "reaches the rendezvous."},
    {Torchrun, Group::Logs, &Flags::logs_specs, {"--logs-specs", "--logs_specs"}, "", "NAME", kNone,
     {},
     "A Python plug-in that lays out the logs: an entry point of the group torchrun.logs_specs in "
     "the workers' Python. default is torchrun's own layout."},
    {Torchrun, Group::Devices, &Flags::numa_binding, {"--numa-binding", "--numa_binding"}, "",
     "MODE", kNone, kNumaModes,
     "Bind each worker to the CPUs near its GPU or XPU: those of the device's NUMA node or of its "
     "socket, cores of its own, or one last-level cache. Without devices workers are spread over the "
     "nodes."},
    {Torchrun, Group::Failures, &Flags::signals_to_handle, {"--signals-to-handle",
     "--signals_to_handle"}, "PET_SIGNALS_TO_HANDLE", "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", {},
     "Signals that end the job in an orderly way: passed on to the workers, which then have the "
     "shutdown timeout."},
    {Torchrun, Group::Failures, &Flags::shutdown_timeout, {"--shutdown-timeout",
     "--shutdown_timeout"}, "PET_SHUTDOWN_TIMEOUT", "SECONDS", kNone, {},
     "Time between asking the workers to end and killing them; without it "
     "TORCH_ELASTIC_SHUTDOWN_TIMEOUT or 30."},
    {Torchrun, Group::Devices, &Flags::virtual_local_rank, {"--virtual-local-rank",
     "--virtual_local_rank"}, "PET_VIRTUAL_LOCAL_RANK", "", kNone, {},
     "Each worker sees only its own GPU, as device 0, and LOCAL_RANK=0."},
    {Torchrun, Group::Inert, Prints::TorchrunCompletion, {"--print-completion",
     "--print_completion"}, "", "SHELL", kNone, kTorchrunShells,
     "The same as --completion, under torchrun's name."},
    {LaunchModule, Group::Program, &Flags::use_env, {"--use-env", "--use_env"}, "", "", kNone, {},
     "Do not pass --local-rank=N to the script; it reads LOCAL_RANK."},
    {Muster, Group::Workers, &Flags::cluster, {"--cluster"}, "MUSTER_CLUSTER", "SYSTEM", kNone,
     kClusters,
     "Take from the scheduler what is not given: nodes, node rank, endpoint, run id, workers (one on "
     "each GPU of the allocation, or one), and the backend c10d. Without a value, or with auto: the "
     "scheduler whose variables are set. --dry-run shows each value and where it comes from.",
     {}, "auto"},
    {Muster, Group::Workers, &Flags::hosts, {"--hosts"}, "MUSTER_HOSTS", "HOST[:WORKERS],...", kNone,
     {},
     "Start muster on these hosts by ssh, with the same arguments in the same folder, and make one job "
     "of them. The lines of each host have its name in front."},
    {Muster, Group::Workers, &Flags::hostfile, {"--hostfile"}, "MUSTER_HOSTFILE", "FILE", kNone, {},
     "As --hosts, with one host in each line of FILE: HOST, HOST:WORKERS or HOST slots=WORKERS."},
    {Muster, Group::Workers, &Flags::exported, {"--export"}, "MUSTER_EXPORT", "NAME[=VALUE],...", "",
     {},
     "With --hosts: variables that the hosts get, besides those of muster's options and those that "
     "choose a Python; two commas stand for one inside a value."},
    {Muster, Group::Muster, &Flags::dry_run, {"--dry-run", "--dry_run"}, "MUSTER_DRY_RUN", "",
     kNone, {},
     "Print the workers' commands and environment, start nothing, and end."},
    {Muster, Group::Muster, &Flags::strict, {"--strict"}, "MUSTER_STRICT", "", kNone, {},
     "Make every warning about the options an error."},
    {Muster, Group::Failures, &Flags::capture_stderr, {"--capture-stderr", "--capture_stderr"},
     "MUSTER_CAPTURE_STDERR", "WHEN", "auto", kCaptureModes,
     "Keep each worker's last lines on stderr for the failure summary. A worker that would write to "
     "muster's terminal gets a terminal of its own. Where none can be made, auto gives it muster's "
     "terminal and keeps no lines, and always gives it a pipe. never: keep nothing."},
    {Muster, Group::Failures, &Flags::failure_report, {"--failure-report", "--failure_report"},
     "MUSTER_FAILURE_REPORT", "FILE", kNone, {},
     "Write the failure summary to FILE, as JSON."},
    {Muster, Group::Failures, &Flags::exit_code, {"--exit-code", "--exit_code"}, "MUSTER_EXIT_CODE",
     "RULE", "torchrun", kExitCodes,
     "Exit status after a failure: torchrun is always 1, propagate is the first cause's, 128+N "
     "for signal N."},
    {Muster, Group::Devices, &Flags::omp, {"--omp"}, "MUSTER_OMP", "auto|N", kNone, {},
     "OMP_NUM_THREADS for each worker; auto shares this node's CPUs out evenly."},
    {Muster, Group::Workers, &Flags::warm, {"--warm"}, "MUSTER_WARM", "", kNone, {},
     "Start the workers as forks of one process per node that has imported torch and what else the "
     "script imports at its top: a restart then takes a tenth of a second in place of the imports. "
     "Where that is not safe they start cold, and a line says why."},
    {Muster, Group::Workers, &Flags::warm_modules, {"--warm-modules", "--warm_modules"},
     "MUSTER_WARM_MODULES", "NAME,...", kNone, {},
     "With --warm: import these modules, too."},
    {Muster, Group::Logs, &Flags::log_max_bytes, {"--log-max-bytes", "--log_max_bytes"},
     "MUSTER_LOG_MAX_BYTES", "SIZE", kNone, {},
     "Keep each log file below SIZE bytes (64K, 100M, 2G) by removing its middle: the beginning and "
     "the end of each attempt stay."},
    {Muster, Group::Logs, &Flags::log_on_full, {"--log-on-full", "--log_on_full"},
     "MUSTER_LOG_ON_FULL", "WHAT", "drop", kOnFull,
     "When the disk of the logs is full: drop removes the middle of the log files and what still "
     "does not fit, and workers never notice; fail ends the job."},
    {Muster, Group::Failures, &Flags::hang_timeout, {"--hang-timeout", "--hang_timeout"},
     "MUSTER_HANG_TIMEOUT", "SECONDS", kNone, {},
     "Write the stacks of all workers and end one as failed when it has written nothing and taken no "
     "CPU time for this time, its child processes included."},
    {Muster, Group::Failures, &Flags::restart_policy, {"--restart-policy", "--restart_policy"},
     "MUSTER_RESTART_POLICY", "BUDGETS", kNone, {},
     "How often the workers are started again, by cause, such as failures=3,hangs=2,nodes=10: failures "
     "of workers (--max-restarts), workers that hung, nodes that were lost. An attempt that ends "
     "before any progress costs double, the third one in a row ends the job (with status 70 under "
     "--exit-code=propagate), and waits between restarts grow. The same on all muster nodes."},
    {Muster, Group::Failures, &Flags::progress_file, {"--progress-file", "--progress_file"},
     "MUSTER_PROGRESS_FILE", "FILE", kNone, {},
     "A file whose content the script changes when it has got further, such as the number of its "
     "step. Without it, progress is what workers report over the worker channel."},
    {Muster, Group::Failures, &Flags::leftover_timeout, {"--leftover-timeout",
     "--leftover_timeout"}, "MUSTER_LEFTOVER_TIMEOUT", "SECONDS", kNone, {},
     "Time that processes which successful workers have left have to end by themselves, 30 when not "
     "given. Then they are killed. After a failure they have 2 seconds at most."},
    {Muster, Group::Failures, &Flags::signal_to, {"--signal-to", "--signal_to"}, "MUSTER_SIGNAL_TO",
     "WHOM", "leader", kSignalTo,
     "Who gets the signal that ends a worker: leader, if the worker catches it, the worker's own process "
     "alone, and its data loaders and other helpers when it has ended or most of the shutdown timeout "
     "is over; group, all of them at once, as under torchrun."},
    {Muster, Group::Failures, &Flags::signals_to_forward, {"--signals-to-forward",
     "--signals_to_forward"}, "MUSTER_SIGNALS_TO_FORWARD", "NAMES", kNone, {},
     "Signals that are passed on to the workers and do not end the job, such as a request for a "
     "checkpoint: SIGUSR1 when not given. Workers that do not catch such a signal do not get it. "
     "An empty list: none."},
    {Muster, Group::Failures, &Flags::notice_signals, {"--notice-signals", "--notice_signals"},
     "MUSTER_NOTICE_SIGNALS", "NAME@SECONDS,...", kNone, {},
     "Signals that say that this node goes in so many seconds, such as SIGUSR1@120. All workers of the "
     "job get a notice, and may save; the job then stops or goes on without this node. Without @SECONDS: "
     "in --notice-seconds."},
    {Muster, Group::Failures, &Flags::notice_from, {"--notice-from", "--notice_from"},
     "MUSTER_NOTICE_FROM", "COMMAND", kNone, {},
     "A line for /bin/sh that runs as long as the job, and says when this node goes: it prints "
     "SECONDS REASON, or ends with status 0, which means --notice-seconds."},
    {Muster, Group::Failures, &Flags::notice_seconds, {"--notice-seconds", "--notice_seconds"},
     "MUSTER_NOTICE_SECONDS", "SECONDS", kNone, {},
     "The time from a notice that names none until this node goes; 120 when not given."},
    {Muster, Group::Failures, &Flags::on_agent_death, {"--on-agent-death", "--on_agent_death"},
     "MUSTER_ON_AGENT_DEATH", "WHAT", "kill", kOnAgentDeath,
     "What happens to the workers when the agent dies.",
     {.value = "adopt", .reason = "a new agent that takes over live workers does not exist yet; kill "
                                  "is the only value"},
     {}, true},
    {Muster, Group::Rendezvous, &Flags::spare, {"--spare"}, "MUSTER_SPARE", "", kNone, {},
     "This node waits, and takes part only when another is missing. If torchrun hosts the "
     "rendezvous, this holds for muster nodes only."},
    {Muster, Group::Rendezvous, &Flags::scale_policy, {"--scale-policy", "--scale_policy"},
     "MUSTER_SCALE_POLICY", "WHEN", kNone, kScalePolicies,
     "When a node that joins a running job is taken in: now restarts the others at once (the "
     "default, as under torchrun); at-restart waits for their next restart; never lets it only "
     "replace a node that is gone. The same on all muster nodes."},
    {Muster, Group::Rendezvous, &Flags::on_notice, {"--on-notice", "--on_notice"},
     "MUSTER_ON_NOTICE", "WHAT", kNone, kOnNotices,
     "What follows a notice that a node will go, when all nodes have saved, and at its deadline: "
     "stop ends the job; shrink restarts it without that node, which costs no restart; auto (the "
     "default) shrinks if enough other nodes are there, and stops otherwise. The same on all muster "
     "nodes."},
    {Muster, Group::Rendezvous, &Flags::rdzv_token_file, {"--rdzv-token-file", "--rdzv_token_file"},
     "MUSTER_RDZV_TOKEN_FILE", "FILE", kNone, {},
     "A file with the rendezvous' token, the same on all nodes and at musterd: nodes and host prove to "
     "each other that they have it. Without the option: the systemd credential rdzv-token, where "
     "there is one."},
    {Muster, Group::Rendezvous, &Flags::rdzv_tls_ca, {"--rdzv-tls-ca", "--rdzv_tls_ca"},
     "MUSTER_RDZV_TLS_CA", "FILE", kNone, {},
     "Connect to the rendezvous by TLS only, to a host whose certificate this CA (PEM) has signed for "
     "the host's name or address."},
    {Muster, Group::Rendezvous, &Flags::rdzv_tls_cert, {"--rdzv-tls-cert", "--rdzv_tls_cert"},
     "MUSTER_RDZV_TLS_CERT", "FILE", kNone, {},
     "This node's certificate (PEM), for a host that asks for one, and for a rendezvous that this "
     "node hosts."},
    {Muster, Group::Rendezvous, &Flags::rdzv_tls_key, {"--rdzv-tls-key", "--rdzv_tls_key"},
     "MUSTER_RDZV_TLS_KEY", "FILE", kNone, {},
     "File with the key of --rdzv-tls-cert."},
    {Muster, Group::Rendezvous, &Flags::rdzv_tls_allow, {"--rdzv-tls-allow", "--rdzv_tls_allow"},
     "MUSTER_RDZV_TLS_ALLOW", "NAME[,NAME...]", kNone, {},
     "Where this node hosts the rendezvous: let in only nodes and HTTP clients with one of these DNS names "
     "in their certificate. This node's own certificate must have one of them, too."},
    {Muster, Group::Rendezvous, &Flags::c10d_allow, {"--c10d-allow", "--c10d_allow"},
     "MUSTER_C10D_ALLOW", "WHO", kNone, {},
     "Who may use the stores of this node, the rendezvous' and the workers', by PyTorch's protocol: off, "
     "any, or a list of loopback, members (of the run, by their token or certificate), addresses and "
     "networks. Default: any; with a token or --rdzv-tls-cert members,loopback."},
    {Muster, Group::Rendezvous, &Flags::http, {"--http"}, "MUSTER_HTTP", "[ADDRESS:]PORT", kNone,
     {},
     "If this node hosts the rendezvous: serve the run's page, JSON and metrics over HTTP, for browsers, "
     "musterctl and Prometheus. A port alone means 127.0.0.1, 0 a free "
     "one. Another address needs --rdzv-token-file."},
    {Muster, Group::Failures, &Flags::preflight, {"--preflight"}, "MUSTER_PREFLIGHT", "", kNone, {},
     "Check this machine with `musterctl doctor --quick` first, and take no part in the job if a "
     "check fails."},
    {Muster, Group::Muster, Prints::Completion, {"--completion"}, "", "SHELL", kNone, kShells,
     "Print the completion script for a shell."},
    {Muster, Group::Muster, Prints::PythonEntry, {"--python-entry"}, "", "", kNone, {},
     "Print the folder that makes accelerate launch, fabric run and the like start through muster "
     "when it is in PYTHONPATH."},
    {Muster, Group::Muster, Prints::Recipe, {"--recipe"}, "", "SYSTEM", kNone, kRecipes,
     "Print a recipe to begin with: a batch script for Slurm, a Job for Kubernetes, a Dockerfile, a unit "
     "of systemd."},
    {Muster, Group::Muster, Prints::Version, {"--version"}, "", "", kNone, {},
     "Print muster's version."},
});
// clang-format on

}  // namespace

std::string Option::display_name() const {
  std::string text(names[0]);
  if (!names[1].empty()) text.append("/").append(names[1]);
  return text;
}

std::span<const Option> all_options() {
  return kTable;
}

std::size_t option_index(const OptionField& field) {
  const auto found = std::find_if(kTable.begin(), kTable.end(),
                                  [&](const Option& option) { return option.field == field; });
  MUSTER_CHECK(found != kTable.end());
  return static_cast<std::size_t>(found - kTable.begin());
}

bool is_known(const Option& option, bool launch_module) {
  return option.origin != OptionOrigin::LaunchModule || launch_module;
}

}  // namespace muster
