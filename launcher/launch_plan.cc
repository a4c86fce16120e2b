#include "launcher/launch_plan.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/nearest_name.h"
#include "base/python_text.h"
#include "launcher/cluster_flags.h"
#include "launcher/inert_flags.h"
#include "launcher/log_setup.h"
#include "launcher/python_command.h"
#include "launcher/rendezvous_flags.h"
#include "launcher/rendezvous_setup.h"
#include "launcher/restart_flags.h"
#include "launcher/script_check.h"
#include "launcher/stop_flags.h"
#include "launcher/stream_flags.h"
#include "launcher/worker_count.h"

namespace muster {
namespace {

constexpr std::int64_t kDefaultMasterPort = 29500;  // torch/distributed/run.py
constexpr int kDefaultC10dPort = 29400;             // c10d_rendezvous_backend.py
constexpr int kDefaultEtcdPort = 2379;              // etcd_rendezvous.py

constexpr std::string_view kBackends[] = {"c10d", "etcd", "etcd-v2", "static"};

using Outcome = Checked<void>;

/// "2.5", with one digit after the point.
std::string cpus_text(double cpus) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", cpus);
  return text;
}

class Planner {
 public:
  Planner(const Flags& flags, const Environment& environment, const NodeFacts& facts)
      : flags_(flags), environment_(environment), facts_(facts) {}

  Checked<LaunchPlan> run();

 private:
  Outcome plan_nodes();
  Outcome plan_workers();
  Outcome plan_rendezvous();
  Outcome plan_endpoint();
  Outcome plan_settings();
  Outcome plan_token(const std::string& file);
  void plan_run_id(bool chosen_here);
  Outcome plan_logs();
  Outcome find_workers_python();
  Outcome plan_command();
  Outcome check_last();
  Outcome plan_omp();
  Outcome plan_events();

  std::string name(const OptionField& field) const { return flags_.name_of(field); }
  /// Infinite if there is none.
  double cpu_quota() const {
    const auto quota = facts_.cpu_quota ? facts_.cpu_quota() : std::nullopt;
    return quota.value_or(std::numeric_limits<double>::infinity());
  }
  void warn(std::string text) { plan_.warnings.push_back(std::move(text)); }
  const std::string* variable(std::string_view name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? nullptr : &found->second;
  }

  const Flags& flags_;
  const Environment& environment_;
  const NodeFacts& facts_;
  LaunchPlan plan_;
  std::string python_;  // Empty until a part of the plan needs it.
  std::vector<std::string> settings_without_effect_;
};

/// Returns from the calling function if the expression is an error.
#define MUSTER_TRY(expression)                                \
  do {                                                        \
    if (auto done = (expression); !done) return done.error(); \
  } while (false)

Outcome Planner::plan_nodes() {
  const auto nodes = parse_nnodes(flags_.nnodes, name(&Flags::nnodes));
  if (!nodes) return nodes.error();
  plan_.agent.min_nodes = nodes->min;
  plan_.agent.max_nodes = nodes->max;
  if (flags_.standalone) {
    // torchrun waits here for nodes that can never join.
    if (nodes->min > 1)
      return FlagError{name(&Flags::nnodes) + " is " + python_repr(flags_.nnodes) + ", but " +
                       name(&Flags::standalone) +
                       " means this node alone; leave out one of the two"};
    plan_.agent.max_nodes = 1;
  }
  if (flags_.max_restarts < 0)
    return FlagError{name(&Flags::max_restarts) + " is " + std::to_string(flags_.max_restarts) +
                     ": it must be 0 or more"};
  plan_.agent.max_restarts = static_cast<int>(
      std::min<std::int64_t>(flags_.max_restarts, std::numeric_limits<int>::max()));
  plan_.agent.role = flags_.role;
  return plan_restarts(flags_, plan_.agent);
}

Outcome Planner::plan_workers() {
  const std::string* devices = variable("CUDA_VISIBLE_DEVICES");
  auto count = count_workers({.text = flags_.nproc_per_node,
                              .flag = name(&Flags::nproc_per_node),
                              .cuda_visible_devices = devices,
                              .facts = facts_});
  if (!count) return count.error();
  plan_.agent.local_world_size = count->workers;
  if (count->of_cpus && cpu_quota() < count->workers)
    plan_.notices.push_back(
        name(&Flags::nproc_per_node) + " is " + python_repr(flags_.nproc_per_node) + ": " +
        std::to_string(count->workers) + " workers share " + cpus_text(cpu_quota()) +
        " CPUs, the quota of this process's cgroup; give a number of workers "
        "that fits");
  if (const auto& shown = count->cuda_visible_devices; shown.has_value())
    plan_.agent.worker_environment["CUDA_VISIBLE_DEVICES"] = *shown;
  return plan_omp();
}

Outcome Planner::plan_omp() {
  const int workers = plan_.agent.local_world_size;
  const bool is_set = variable("OMP_NUM_THREADS") != nullptr;
  if (flags_.omp) {
    std::optional<std::int64_t> threads = parse_python_int(*flags_.omp);
    if (*flags_.omp == "auto") {
      const double cpus = std::min<double>(facts_.cpus(), cpu_quota());
      threads = std::max<std::int64_t>(1, static_cast<std::int64_t>(cpus / std::max(1, workers)));
    }
    if (!threads || *threads <= 0)
      return FlagError{name(&Flags::omp) + " is " + python_repr(*flags_.omp) +
                       ": give auto or a number above 0"};
    plan_.agent.worker_environment["OMP_NUM_THREADS"] = std::to_string(*threads);
    if (is_set)
      plan_.notices.push_back("OMP_NUM_THREADS is " + std::to_string(*threads) +
                              " for each worker, from " + name(&Flags::omp) +
                              "; the environment's value is not used");
  } else if (!is_set && workers > 1) {
    plan_.agent.set_omp_num_threads = true;
    plan_.notices.emplace_back(
        "OMP_NUM_THREADS is not set: each worker gets 1, because more would overload the CPUs; "
        "set it, or give --omp auto to divide the CPUs among the workers");
  }
  return {};
}

void Planner::plan_run_id(bool chosen_here) {
  std::string& run_id = plan_.agent.run_id;
  run_id = flags_.rdzv_id;
  const bool is_given = flags_.source(&Flags::rdzv_id) != Source::Default;
  // torchrun replaces a given id also if standalone is only implied (one node, no endpoint, no
  // master port). muster keeps it: people look for it in the log directory and in
  // TORCHELASTIC_RUN_ID.
  if (chosen_here && (!is_given || flags_.standalone)) run_id = facts_.new_run_id();
  if (run_id.empty()) {
    warn(name(&Flags::rdzv_id) + " is empty: a new id is used instead");
    run_id = facts_.new_run_id();
  }
  const bool may_meet_others =
      !chosen_here && plan_.agent.rendezvous.backend != RendezvousBackend::Static;
  if (may_meet_others && !is_given && plan_.agent.max_nodes > 1 && !flags_.rdzv_endpoint.empty())
    plan_.notices.push_back(
        "this job of several nodes has the default run id " + python_repr(run_id) +
        ": other jobs that use it at the same endpoint would be mixed with this one; give each "
        "job its own " +
        name(&Flags::rdzv_id));
}

Outcome Planner::plan_rendezvous() {
  RendezvousOptions& rendezvous = plan_.agent.rendezvous;
  const bool chosen_here =
      flags_.standalone || (flags_.rdzv_backend == "static" && flags_.rdzv_endpoint.empty() &&
                            !flags_.master_port && plan_.agent.max_nodes == 1);
  const std::string backend = chosen_here ? "c10d" : flags_.rdzv_backend;
  const bool is_etcd = backend == "etcd" || backend == "etcd-v2";
  if (backend != "c10d" && backend != "static" && !is_etcd)
    return FlagError{name(&Flags::rdzv_backend) + " is " + python_repr(backend) +
                     did_you_mean(backend, kBackends) + ": give c10d, etcd or static"};
  const auto conf = parse_rendezvous_conf(flags_.rdzv_conf, backend, name(&Flags::rdzv_conf));
  if (!conf) return conf.error();
  rendezvous.conf = conf->values;
  settings_without_effect_ = conf->without_effect;
  for (const std::string& key : conf->without_effect)
    warn(name(&Flags::rdzv_conf).append(": ").append(key) + " has no effect with the backend " +
         backend);
  rendezvous.backend_name = backend;
  rendezvous.backend = is_etcd             ? RendezvousBackend::Etcd
                       : backend == "c10d" ? RendezvousBackend::C10d
                                           : RendezvousBackend::Static;
  if (backend == "etcd-v2")
    plan_.notices.push_back(name(&Flags::rdzv_backend) +
                            " is etcd-v2: etcd's v3 is used, as its v2 was removed from etcd");
  rendezvous.standalone = chosen_here;
  rendezvous.local_addr = flags_.local_addr;
  const std::string* identical = variable("TORCH_ELASTIC_WORKER_IDENTICAL");
  rendezvous.worker_identical = identical != nullptr && *identical == "1";
  const std::string* unshared = variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  // torchrun's older etcd backend, "etcd", has no store for the workers: the worker with rank 0
  // hosts it.
  const bool may_share = unshared == nullptr || *unshared != "1";
  rendezvous.shares_store = backend == "static" || (backend != "etcd" && may_share);
  plan_run_id(chosen_here);
  return {};
}

Outcome Planner::plan_token(const std::string& file) {
  const std::string flag = name(&Flags::rdzv_token_file);
  if (file.empty()) return FlagError{flag + " is empty; give the file that has the token in it"};
  if (plan_.agent.rendezvous.backend == RendezvousBackend::Static)
    return FlagError{flag +
                     " cannot protect the static backend, whose store asks nobody for a token; "
                     "give --rdzv-backend c10d"};
  plan_.agent.rendezvous.token_file = file;
  return {};
}

/// Makes the settings of a rendezvous over a network from --nnodes, --rdzv-conf and muster's own
/// options. muster's own options override --rdzv-conf.
Outcome Planner::plan_settings() {
  RendezvousOptions& rendezvous = plan_.agent.rendezvous;
  if (rendezvous.standalone) return {};
  auto conf = rendezvous.conf;
  for (const std::string& key : settings_without_effect_)
    conf.erase(key);
  if (flags_.rdzv_token_file) MUSTER_TRY(plan_token(*flags_.rdzv_token_file));
  MUSTER_TRY(plan_tls(flags_, plan_.agent.rendezvous));
  if (flags_.spare) conf["spare"] = "true";
  if (flags_.scale_policy) conf["scale_policy"] = *flags_.scale_policy;
  if (flags_.on_notice) conf["on_notice"] = *flags_.on_notice;
  if (rendezvous.backend == RendezvousBackend::Etcd)
    MUSTER_TRY(plan_etcd(conf, rendezvous, name(&Flags::rdzv_conf)));
  const auto settings = make_settings({.run_id = plan_.agent.run_id,
                                       .min_nodes = plan_.agent.min_nodes,
                                       .max_nodes = plan_.agent.max_nodes,
                                       .max_restarts = plan_.agent.max_restarts,
                                       .restart_policy = plan_.agent.restart_policy},
                                      conf);
  if (!settings) return FlagError{settings.error().reason};
  rendezvous.settings = *settings;
  if (rendezvous.backend == RendezvousBackend::Static) return {};
  if (!rendezvous.further.empty() && rendezvous.settings.is_host == true)
    return FlagError{name(&Flags::rdzv_conf) + ": is_host=true makes this node the host, and " +
                     name(&Flags::rdzv_endpoint) +
                     " names several musterds; leave out one of the two"};
  if (rendezvous.settings.store_type == RendezvousSettings::StoreType::File &&
      plan_.agent.max_nodes > 1)
    return FlagError{name(&Flags::rdzv_conf) +
                     ": store_type=file is not supported: nodes meet over the network; leave it "
                     "out, and name a host with " +
                     name(&Flags::rdzv_endpoint)};
  if (flags_.source(&Flags::node_rank) != Source::Default) {
    if (rendezvous.node_rank >= 0) rendezvous.preferred_rank = rendezvous.node_rank;
    return {};
  }
  // The variables in which schedulers number their nodes: Slurm, Kubernetes' indexed jobs.
  for (const char* index : {"SLURM_NODEID", "JOB_COMPLETION_INDEX"}) {
    const std::string* text = variable(index);
    const auto number = text == nullptr ? std::nullopt : parse_python_int(*text);
    if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) continue;
    rendezvous.preferred_rank = static_cast<int>(*number);
    return {};
  }
  return {};
}

Outcome Planner::plan_endpoint() {
  RendezvousOptions& rendezvous = plan_.agent.rendezvous;
  if (plan_.agent.run_id.find('/') != std::string::npos)
    return FlagError{name(&Flags::rdzv_id) + " is " + python_repr(plan_.agent.run_id) +
                     ": it names the log directory, so it cannot have a slash"};
  if (rendezvous.standalone) {
    rendezvous.endpoint = "localhost:0";
    return {};
  }
  constexpr auto kMaxInt = std::numeric_limits<int>::max();
  rendezvous.node_rank = static_cast<int>(
      std::clamp<std::int64_t>(flags_.node_rank, std::numeric_limits<int>::min(), kMaxInt));
  const bool is_static = rendezvous.backend == RendezvousBackend::Static;
  const bool is_c10d = rendezvous.backend == RendezvousBackend::C10d;
  const int default_port = is_c10d ? kDefaultC10dPort : kDefaultEtcdPort;
  const auto store = rendezvous.conf.find("store_type");
  if (is_c10d && store != rendezvous.conf.end() && strip(store->second) == "file") {
    rendezvous.endpoint = flags_.rdzv_endpoint;  // The endpoint is a path.
    return {};
  }
  Endpoint endpoint;
  std::string further_text;
  if (is_static && flags_.rdzv_endpoint.empty()) {
    // Address and port are parsed apart, so that an IPv6 address needs no brackets.
    const std::int64_t port = flags_.master_port.value_or(kDefaultMasterPort);
    if (port < 0 || port > 65535)
      return FlagError{name(&Flags::master_port) + " is " + std::to_string(port) +
                       ": a port is a number from 0 to 65535"};
    std::string address(strip(flags_.master_addr));
    if (address.empty())
      return FlagError{name(&Flags::master_addr) + " is '': it must be a host name or an address"};
    if (!address.starts_with('[')) address = "[" + address + "]";
    const auto parsed = parse_endpoint(address, name(&Flags::master_addr));
    if (!parsed) return parsed.error();
    endpoint = {.host = parsed->host, .port = static_cast<int>(port)};
  } else {
    const std::string flag = name(&Flags::rdzv_endpoint);
    const auto parsed = is_static ? parse_one_endpoint(flags_.rdzv_endpoint, flag)
                                  : parse_endpoints(flags_.rdzv_endpoint, flag);
    if (!parsed) return parsed.error();
    endpoint = parsed->front();
    for (std::size_t i = 1; i < parsed->size(); ++i) {
      const Endpoint& one = (*parsed)[i];
      rendezvous.further.push_back(
          {one.host, static_cast<std::uint16_t>(one.port.value_or(default_port))});
      further_text += "," + to_text(one);
    }
  }
  if (is_static && !endpoint.port)
    return FlagError{name(&Flags::rdzv_endpoint) + " is " + python_repr(flags_.rdzv_endpoint) +
                     ": the static backend needs a port" +
                     (flags_.source(&Flags::rdzv_backend) == Source::Default
                          ? "; --rdzv-backend c10d, which is what most jobs of several nodes use, "
                            "needs none"
                          : "; give HOST:PORT")};
  rendezvous.endpoint = to_text(endpoint) + further_text;
  rendezvous.host = endpoint.host;
  rendezvous.port = static_cast<std::uint16_t>(endpoint.port.value_or(default_port));
  if (is_static && (rendezvous.node_rank < 0 || rendezvous.node_rank >= plan_.agent.max_nodes))
    return FlagError{
        name(&Flags::node_rank) + " is " + std::to_string(flags_.node_rank) + ": with " +
        std::to_string(plan_.agent.max_nodes) +
        (plan_.agent.max_nodes == 1 ? " node it is 0" : " nodes it is from 0 to ") +
        (plan_.agent.max_nodes == 1 ? std::string() : std::to_string(plan_.agent.max_nodes - 1)) +
        (flags_.source(&Flags::nnodes) == Source::Default
             ? "; PET_NNODES is not set, and no --nnodes is given"
             : "")};
  return {};
}

Outcome Planner::plan_logs() {
  LogOptions& log = plan_.agent.log;
  const auto filter = parse_ranks(flags_.local_ranks_filter, name(&Flags::local_ranks_filter));
  if (!filter) return filter.error();
  const auto redirects = parse_streams(flags_.redirects, name(&Flags::redirects));
  if (!redirects) return redirects.error();
  const auto tee = parse_streams(flags_.tee, name(&Flags::tee));
  if (!tee) return tee.error();
  log.local_ranks_filter = *filter;
  if (has_logs_plugin(flags_)) {
    MUSTER_TRY(find_workers_python());
    plan_logs_specs(flags_, python_, log);
  }
  log.discard = !log.specs && flags_.log_dir == "/dev/null";
  if (!log.discard) {
    if (!log.specs) log.dir = flags_.log_dir;
    log.redirects = *redirects;
    log.tee = *tee;
    log.duplicate_stdout_filters = flags_.duplicate_stdout_filters;
    log.duplicate_stderr_filters = flags_.duplicate_stderr_filters;
  }
  if (flags_.log_max_bytes) {
    const auto bytes = parse_log_limit(*flags_.log_max_bytes, name(&Flags::log_max_bytes));
    if (!bytes) return bytes.error();
    log.max_bytes = *bytes;
  }
  log.on_full = flags_.log_on_full == "fail" ? LogOnFull::Fail : LogOnFull::Drop;
  log.prefix_template = flags_.log_line_prefix_template;
  const auto* prefix = variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (log.prefix_template.empty() && prefix != nullptr) log.prefix_template = *prefix;
  log.capture_stderr = flags_.capture_stderr == "always"  ? CaptureStderr::Always
                       : flags_.capture_stderr == "never" ? CaptureStderr::Never
                                                          : CaptureStderr::Auto;
  return {};
}

Outcome Planner::find_workers_python() {
  if (!python_.empty()) return {};
  auto python =
      find_python(environment_, facts_.argv0, facts_.first_executable, facts_.first_existing);
  if (!python) return python.error();
  python_ = python->path;
  if (!python->warning.empty()) warn(python->warning);
  return {};
}

Outcome Planner::plan_command() {
  if (!flags_.run_path && flags_.no_python && flags_.module)
    return FlagError{name(&Flags::no_python) + " and " + name(&Flags::module) +
                     " contradict each other: a module needs Python"};
  if (flags_.run_path || !flags_.no_python) MUSTER_TRY(find_workers_python());
  plan_worker_command(flags_, python_, plan_.agent);
  return {};
}

Outcome Planner::plan_events() {
  const std::string& handler = flags_.event_log_handler;
  if (handler != "console" && handler != "null" && handler != "dynamic_rendezvous")
    return FlagError{name(&Flags::event_log_handler) + " is " + python_repr(handler) +
                     ": the known handlers are console, null and dynamic_rendezvous (which records "
                     "nothing, as null)"};
  plan_.agent.events_on_console = handler == "console" && shows_events(environment_);
  return {};
}

Outcome Planner::check_last() {
  if (plan_.agent.local_world_size <= 0)
    return FlagError{name(&Flags::nproc_per_node) + " is " + python_repr(flags_.nproc_per_node) +
                     ": there must be at least one worker"};
  if (!(flags_.monitor_interval > 0))  // Also true for NaN.
    return FlagError{name(&Flags::monitor_interval) + " must be a number above 0"};
  if (flags_.script.empty())
    return FlagError{
        "the name of the script is empty; give a file, or with -m a module, or with --no-python a "
        "program"};
  MUSTER_TRY(check_script(flags_, facts_, plan_.agent));
  MUSTER_TRY(plan_numa(flags_, environment_, facts_, plan_));
  plan_.agent.virtual_local_rank = flags_.virtual_local_rank;
  if (flags_.virtual_local_rank) return check_virtual_devices(plan_.agent, environment_);
  return {};
}

Checked<LaunchPlan> Planner::run() {
  if (flags_.launch_module && flags_.no_python && !flags_.use_env)
    return FlagError{name(&Flags::no_python) +
                     " also needs --use-env: a program by itself is not given --local-rank"};
  MUSTER_TRY(plan_nodes());
  MUSTER_TRY(plan_workers());
  MUSTER_TRY(plan_rendezvous());
  MUSTER_TRY(plan_logs());
  MUSTER_TRY(plan_events());
  MUSTER_TRY(plan_stop(flags_, environment_, plan_));
  MUSTER_TRY(plan_command());
  MUSTER_TRY(plan_endpoint());
  MUSTER_TRY(plan_settings());
  MUSTER_TRY(plan_http(flags_, plan_.agent));
  MUSTER_TRY(check_last());
  plan_.agent.propagate_exit_code = flags_.exit_code == "propagate";
  plan_.agent.failure_report = flags_.failure_report;
  plan_.agent.own_error_file = own_error_file(flags_, environment_);
  for (std::string& line : inert_flags(flags_, environment_, plan_.agent))
    warn(std::move(line));
  for (std::string& line : cluster_warnings(flags_, environment_, facts_, plan_.agent))
    warn(std::move(line));
  if (flags_.strict && !plan_.warnings.empty()) {
    std::string text = name(&Flags::strict) + " makes these errors:";
    for (const std::string& warning : plan_.warnings)
      text.append("\n  ").append(warning);
    return FlagError{std::move(text)};
  }
  return std::move(plan_);
}

}  // namespace

std::string own_error_file(const Flags& flags, const Environment& environment) {
  const auto found = environment.find("TORCHELASTIC_ERROR_FILE");
  return flags.launch_module || found == environment.end() ? "" : found->second;
}

Checked<LaunchPlan> plan_launch(const Flags& flags, const Environment& environment,
                                const NodeFacts& facts) {
  if (!flags.cluster) return Planner(flags, environment, facts).run();
  std::vector<std::string> choices;
  const auto filled = fill_from_cluster(flags, environment, facts, choices);
  if (!filled) return filled.error();
  auto plan = Planner(*filled, environment, facts).run();
  if (plan) plan->cluster = std::move(choices);
  return plan;
}

}  // namespace muster
