#include "launcher/inert_flags.h"

#include <algorithm>
#include <initializer_list>

#include "agent/core/uninterruptible.h"
#include "base/python_text.h"

namespace muster {
namespace {

using Fields = std::initializer_list<OptionField>;

class Finder {
 public:
  Finder(const Flags& flags, const AgentOptions& plan) : flags_(flags), plan_(plan) {}

  std::vector<std::string> run(const Environment& environment) {
    find_rendezvous();
    find_logs();
    find_misread();
    find_behind_script();
    find_variables(environment);
    find_watchdogs(environment);
    return std::move(lines_);
  }

 private:
  void add(const OptionField& field, const std::string& text) {
    lines_.push_back(flags_.name_of(field) + text);
  }
  void add_if_on_command_line(const OptionField& field, const std::string& text) {
    if (flags_.on_command_line(field)) add(field, text);
  }
  void find_rendezvous();
  void find_membership(bool is_static);
  bool is_changed(const OptionField& field) const;
  void find_logs();
  void find_misread();
  void find_behind_script();
  void find_variables(const Environment& environment);
  void find_watchdogs(const Environment& environment);
  void find_ranks(const OptionField& field, const StreamMap& streams);

  const Flags& flags_;
  const AgentOptions& plan_;
  std::vector<std::string> lines_;
};

void Finder::find_rendezvous() {
  const bool is_static = plan_.rendezvous.backend == RendezvousBackend::Static;
  if (flags_.standalone)
    for (const OptionField& field :
         Fields{&Flags::rdzv_backend, &Flags::rdzv_endpoint, &Flags::rdzv_id})
      add_if_on_command_line(field, " has no effect with --standalone, which chooses it");
  for (const OptionField& field :
       Fields{&Flags::rdzv_token_file, &Flags::rdzv_tls_ca, &Flags::rdzv_tls_cert,
              &Flags::rdzv_tls_key, &Flags::rdzv_tls_allow, &Flags::c10d_allow})
    if (plan_.rendezvous.standalone && plan_.rendezvous.http.empty() &&
        flags_.source(field) != Source::Default)
      add(field, " has no effect in a job of one node");
  if (!is_static || !flags_.rdzv_endpoint.empty()) {
    const std::string why =
        is_static ? " has no effect where --rdzv-endpoint is given"
        : flags_.rdzv_backend == "static" && !flags_.standalone
            ? " has no effect on a single node without --master-port"
            : " has no effect with this rendezvous; it is for --rdzv-backend static without "
              "--rdzv-endpoint";
    add_if_on_command_line(&Flags::master_addr, why);
    add_if_on_command_line(&Flags::master_port, why);
  }
  find_membership(is_static);
  if (!is_static && plan_.rendezvous.settings.heartbeat_timeout)
    add(&Flags::rdzv_conf,
        " heartbeat_timeout has no effect: muster never gives up a keep-alive. lease decides when "
        "a muster node is lost; keep_alive_interval and keep_alive_max_attempt decide when a "
        "torchrun node is lost");
  if (is_static && plan_.max_nodes > 1 && !flags_.rdzv_endpoint.empty() &&
      flags_.source(&Flags::rdzv_backend) == Source::Default &&
      flags_.source(&Flags::node_rank) == Source::Default)
    add(&Flags::rdzv_endpoint,
        " without --rdzv-backend means static, with this as node 0; give --rdzv-backend c10d, or "
        "--node-rank");
}

void Finder::find_membership(bool is_static) {
  const bool meets_others = plan_.max_nodes > 1 && !flags_.standalone;
  if (!meets_others) {
    for (const OptionField& field :
         Fields{&Flags::node_rank, &Flags::spare, &Flags::scale_policy, &Flags::on_notice})
      if (is_changed(field)) add(field, " has no effect on a single node: it meets no others");
    const bool asks_nobody = flags_.standalone || flags_.rdzv_endpoint.empty();
    if (!plan_.rendezvous.conf.empty() && !is_static && asks_nobody)
      add(&Flags::rdzv_conf, " has no effect on a single node: it waits for no others");
    return;
  }
  if (is_static) {
    if (is_changed(&Flags::c10d_allow))
      add(&Flags::c10d_allow, " has no effect with static: its store serves everybody");
    for (const OptionField& field : Fields{&Flags::spare, &Flags::scale_policy, &Flags::on_notice})
      if (is_changed(field))
        add(field, " has no effect with static: its nodes and ranks never change");
    add_if_on_command_line(&Flags::local_addr,
                           " has no effect with static: --master-addr is what counts");
  } else if (flags_.rdzv_endpoint.empty()) {
    lines_.push_back(flags_.name_of(&Flags::nnodes) +
                     " asks for several nodes, but no --rdzv-endpoint says where they meet: only "
                     "agents on this machine can join");
  }
}

bool Finder::is_changed(const OptionField& field) const {
  if (field == OptionField(&Flags::node_rank)) return flags_.node_rank != 0;
  return flags_.source(field) != Source::Default;
}

void Finder::find_ranks(const OptionField& field, const StreamMap& streams) {
  for (const auto& [rank, set] : streams.by_local_rank)
    if (rank >= plan_.local_world_size)
      add(field, " names local rank " + std::to_string(rank) + ", but the last one is " +
                     std::to_string(plan_.local_world_size - 1));
}

void Finder::find_logs() {
  const LogOptions& log = plan_.log;
  if (log.discard) {
    for (const OptionField& field :
         Fields{&Flags::redirects, &Flags::tee, &Flags::log_line_prefix_template,
                &Flags::local_ranks_filter, &Flags::duplicate_stdout_filters,
                &Flags::duplicate_stderr_filters, &Flags::log_max_bytes})
      if (flags_.source(field) != Source::Default)
        add(field, " has no effect with the log directory /dev/null");
    return;
  }
  if (log.specs) return;  // The plug-in decides what the flags mean.
  find_ranks(&Flags::redirects, log.redirects);
  find_ranks(&Flags::tee, log.tee);
  bool tees_out = false;
  bool tees_err = false;
  bool writes_files = false;
  bool all_err = true;  // Every stderr goes to a file, so its last lines can be read there.
  for (int rank = 0; rank < plan_.local_world_size; ++rank) {
    tees_out = tees_out || log.tee.at(rank).out;
    tees_err = tees_err || log.tee.at(rank).err;
    const StreamSet redirects = log.redirects.at(rank);
    writes_files = writes_files || redirects.out || redirects.err;
    all_err = all_err && (redirects.err || log.tee.at(rank).err);
  }
  writes_files = writes_files || tees_out || tees_err;
  for (const OptionField& field : Fields{&Flags::log_max_bytes, &Flags::log_on_full})
    if (flags_.source(field) != Source::Default && !writes_files)
      add(field, " has no effect: no stream goes to a file; add -r or -t");
  if (log.capture_stderr == CaptureStderr::Always && all_err)
    add(&Flags::capture_stderr, " has no effect: every stderr goes to a file already");
  if (!log.duplicate_stdout_filters.empty() && !tees_out)
    add(&Flags::duplicate_stdout_filters, " has no effect: no stdout is teed; add -t 1 or -t 3");
  if (!log.duplicate_stderr_filters.empty() && !tees_err)
    add(&Flags::duplicate_stderr_filters, " has no effect: no stderr is teed; add -t 2 or -t 3");
  if (flags_.source(&Flags::log_line_prefix_template) != Source::Default && !tees_out && !tees_err)
    add(&Flags::log_line_prefix_template, " has no effect: no stream is teed; add -t");
  const auto& filter = log.local_ranks_filter;
  const bool shows_any = std::any_of(filter.begin(), filter.end(), [this](int rank) {
    return rank >= 0 && rank < plan_.local_world_size;
  });
  if (!filter.empty() && !shows_any)
    add(&Flags::local_ranks_filter, " names no local rank of this node: nothing will be shown");
}

void Finder::find_misread() {
  const auto& spelled = flags_.given[option_index(&Flags::local_ranks_filter)].spelled;
  if (spelled == "--local_rank" || spelled == "--local-rank")
    lines_.push_back(spelled +
                     " in front of the script is read as --local-ranks-filter, as torchrun reads "
                     "it: the console shows only those ranks; put it behind the script if it is "
                     "the script's");
  add_if_on_command_line(&Flags::monitor_interval,
                         " has no effect: muster does not poll, it waits for events");
  if (flags_.warm && !plan_.warm)
    add(&Flags::warm, " has no effect with " + flags_.name_of(&Flags::no_python) +
                          ": only Python scripts can be started warm");
  if (flags_.warm_modules && !flags_.warm)
    add(&Flags::warm_modules, " has no effect without --warm");
  if (flags_.run_path)
    for (const OptionField& field : Fields{&Flags::module, &Flags::no_python})
      add_if_on_command_line(field, " has no effect with --run-path, which runs a Python file");
  if (!flags_.run_path)
    add_if_on_command_line(&Flags::start_method, " has no effect without --run-path");
}

/// Options that only a launcher has. Scripts have options of their own with muster's other names,
/// such as --log-dir.
bool is_launchers_alone(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "--nnodes",    "--nproc-per-node", "--standalone",         "--max-restarts",
      "--no-python", "--redirects",      "--local-ranks-filter", "--cluster"};
  return name.starts_with("--rdzv-") ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void Finder::find_behind_script() {
  for (const std::string& word : flags_.script_arguments) {
    if (word == "--") return;
    if (!word.starts_with("--")) continue;
    std::string name = word.substr(0, word.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    if (!is_launchers_alone(name)) continue;
    for (const Option& known : all_options())
      // A script that starts a launcher may be given such options of its own.
      if (known.long_name() == name && !flags_.on_command_line(known.field))
        lines_.push_back(name +
                         " stands behind the script and goes to it: options of muster stand "
                         "before " +
                         python_repr(flags_.script));
  }
}

void Finder::find_variables(const Environment& environment) {
  for (auto it = environment.lower_bound("PET_"); it != environment.end(); ++it) {
    const std::string& name = it->first;
    if (!name.starts_with("PET_")) return;
    const auto options = all_options();
    const bool is_read = std::any_of(options.begin(), options.end(), [&](const Option& option) {
      return option.environment == name;
    });
    if (!is_read) lines_.push_back(name + " has no effect: no option reads it");
  }
}

void Finder::find_watchdogs(const Environment& environment) {
  const auto is_set = [&environment](const char* name) {
    const auto found = environment.find(name);
    return found != environment.end() && !found->second.empty();
  };
  if (is_set("TORCHELASTIC_HEALTH_CHECK_PORT"))
    lines_.emplace_back(
        "TORCHELASTIC_HEALTH_CHECK_PORT has no effect: no health check server is started, nor does "
        "torchrun start one");
  constexpr const char* kStuck = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  if (is_set(kStuck) && !uninterruptible_timeout(environment.at(kStuck)))
    lines_.push_back(std::string(kStuck) + " is " + python_repr(environment.at(kStuck)) +
                     ": nothing is watched; give a number of seconds above 0");
}

}  // namespace

std::vector<std::string> inert_flags(const Flags& flags, const Environment& environment,
                                     const AgentOptions& plan) {
  return Finder(flags, plan).run(environment);
}

}  // namespace muster
