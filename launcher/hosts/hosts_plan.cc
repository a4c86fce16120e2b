#include "launcher/hosts/hosts_plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/python_text.h"
#include "launcher/argparse.h"
#include "launcher/clusters/hostlist.h"
#include "launcher/rendezvous_flags.h"

namespace muster {
namespace {

// As --cluster chooses a port: below the kernel's range for outgoing connections.
constexpr std::uint32_t kFirstPort = 20000;
constexpr std::uint32_t kPorts = 9000;
constexpr std::string_view kOwnOptions[] = {"--hosts", "--hostfile", "--export"};
// Of the options' variables, those that are this machine's business.
constexpr std::string_view kKeptVariables[] = {"MUSTER_HOSTS", "MUSTER_HOSTFILE", "MUSTER_EXPORT",
                                               "MUSTER_DRY_RUN", "MUSTER_CLUSTER"};
// They choose the Python that runs the script.
constexpr std::string_view kPythonVariables[] = {"PYTHON_EXEC", "VIRTUAL_ENV", "CONDA_PREFIX"};
constexpr std::string_view kPlainPath =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";

bool is_variable_name(std::string_view name) {
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
  return !name.empty() && kFirst.find(name.front()) != std::string_view::npos &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
             std::string_view::npos;
}

/// What each host can find out only by itself is as the options want it.
NodeFacts accepting_facts(const NodeFacts& facts) {
  const auto first = [](const std::vector<std::string>& paths) {
    return paths.empty() ? std::string() : paths.front();
  };
  return {.cpus = [] { return 1; },
          .gpus = [] { return kMaxSlots; },
          .xpus = [] { return kMaxSlots; },
          .new_run_id = facts.new_run_id,
          .first_executable = first,
          .first_existing = first,
          .argv0 = facts.argv0};
}

class HostsPlanner {
 public:
  explicit HostsPlanner(const HostsRequest& request) : request_(request), flags_(request.flags) {}

  Checked<HostsPlan> run();

 private:
  Checked<void> read_hosts();
  Checked<void> check_others() const;
  Checked<void> plan_nodes();
  Checked<void> plan_environment();
  void plan_meeting();
  std::vector<std::string> words_of(std::size_t host) const;
  std::vector<std::string> users_words() const;
  Checked<void> check_words(const NodeJob& job) const;

  std::string name(const OptionField& field) const { return flags_.name_of(field); }
  bool is_given(const OptionField& field) const { return flags_.source(field) != Source::Default; }

  const HostsRequest& request_;
  const Flags& flags_;
  HostsPlan plan_;
  std::map<std::string, std::string> environment_;
  std::vector<std::string> chosen_;  // Options that follow from the hosts, the same on all.
};

Checked<void> HostsPlanner::read_hosts() {
  if (flags_.hosts && flags_.hostfile)
    return FlagError{name(&Flags::hosts) + " and " + name(&Flags::hostfile) +
                     " both name the hosts; leave out one of the two"};
  auto hosts = [&]() -> Checked<std::vector<JobHost>> {
    if (flags_.hosts) return parse_hosts(*flags_.hosts, name(&Flags::hosts));
    const auto text = request_.facts.read_file(*flags_.hostfile);
    if (!text)
      return FlagError{name(&Flags::hostfile) + ": cannot read " + python_repr(*flags_.hostfile)};
    if (text->size() > kMaxHostListBytes)
      return FlagError{name(&Flags::hostfile) + ": " + *flags_.hostfile + " is larger than 1 MiB"};
    return parse_hostfile(*text, *flags_.hostfile);
  }();
  if (!hosts) return hosts.error();
  plan_.hosts = *std::move(hosts);
  return {};
}

/// Options that say in another way what the hosts say.
Checked<void> HostsPlanner::check_others() const {
  const std::string hosts = flags_.hosts ? name(&Flags::hosts) : name(&Flags::hostfile);
  const auto contradiction = [&](const OptionField& field) -> Checked<void> {
    if (!is_given(field)) return {};
    return FlagError{name(field) + " has no place beside " + hosts +
                     ", which decides it for each host; leave it out"};
  };
  for (const OptionField& field :
       {OptionField(&Flags::node_rank), OptionField(&Flags::master_addr),
        OptionField(&Flags::master_port), OptionField(&Flags::standalone),
        OptionField(&Flags::cluster), OptionField(&Flags::local_addr)})
    if (const auto done = contradiction(field); !done) return done;
  if (is_given(&Flags::rdzv_backend) && flags_.rdzv_backend == "static")
    return FlagError{name(&Flags::rdzv_backend) + " static has no place beside " + hosts +
                     ": leave it out, and the hosts meet by c10d"};
  return {};
}

Checked<void> HostsPlanner::plan_nodes() {
  const auto count = static_cast<int>(plan_.hosts.size());
  plan_.min_nodes = count;
  if (is_given(&Flags::nnodes)) {
    const auto nodes = parse_nnodes(flags_.nnodes, name(&Flags::nnodes));
    if (!nodes) return nodes.error();
    if (nodes->max != count)
      return FlagError{name(&Flags::nnodes) + " is " + python_repr(flags_.nnodes) + ", but " +
                       std::to_string(count) +
                       (count == 1 ? " host is named" : " hosts are named") +
                       "; leave it out, or " + "give MIN:" + std::to_string(count) +
                       " for a job that goes on with fewer"};
    plan_.min_nodes = nodes->min;
  } else {
    chosen_.push_back("--nnodes=" + std::to_string(count));
  }
  const auto workers = parse_python_int(flags_.nproc_per_node);
  for (const JobHost& host : plan_.hosts)
    if (is_given(&Flags::nproc_per_node) && workers && host.slots && *workers > *host.slots)
      return FlagError{name(&Flags::nproc_per_node) + " is " + std::to_string(*workers) + ", but " +
                       host.target + " has " + std::to_string(*host.slots) +
                       "; give fewer workers, or leave it out"};
  return {};
}

/// Where the hosts meet: at the first one, at a port that differs from job to job.
void HostsPlanner::plan_meeting() {
  plan_.run_id = is_given(&Flags::rdzv_id) ? flags_.rdzv_id : request_.facts.new_run_id();
  if (!is_given(&Flags::rdzv_id)) chosen_.push_back("--rdzv-id=" + plan_.run_id);
  if (!is_given(&Flags::rdzv_backend)) chosen_.emplace_back("--rdzv-backend=c10d");
  plan_.endpoint = flags_.rdzv_endpoint;
  if (is_given(&Flags::rdzv_endpoint)) return;
  std::uint32_t hash = 2166136261U;  // FNV-1a: a new run id has a new port.
  for (const char c : plan_.run_id)
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  std::string first = plan_.hosts.front().name();
  if (first.find(':') != std::string::npos) first = "[" + first + "]";
  plan_.endpoint = first + ":" + std::to_string(kFirstPort + hash % kPorts);
  chosen_.push_back("--rdzv-endpoint=" + plan_.endpoint);
}

Checked<void> HostsPlanner::plan_environment() {
  const auto is_one_of = [](std::string_view name, auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  for (const auto& [variable, value] : request_.environment)
    if (((variable.starts_with("PET_") || variable.starts_with("MUSTER_")) &&
         !is_one_of(variable, kKeptVariables)) ||
        is_one_of(variable, kPythonVariables))
      environment_[variable] = value;
  for (const std::string& entry : flags_.exported) {
    const auto equals = entry.find('=');
    const std::string variable = entry.substr(0, equals);
    if (!is_variable_name(variable))
      return FlagError{name(&Flags::exported) + ": " + python_repr(variable) +
                       " is no name of a variable; give NAME or NAME=VALUE, and two commas for one "
                       "inside a value"};
    if (equals != std::string::npos) {
      environment_[variable] = entry.substr(equals + 1);
      continue;
    }
    const auto found = request_.environment.find(variable);
    if (found == request_.environment.end())
      return FlagError{name(&Flags::exported)
                           .append(": ")
                           .append(variable)
                           .append(" is not set here; set it, or give ")
                           .append(variable)
                           .append("=VALUE")};
    environment_[variable] = found->second;
  }
  return {};
}

/// The user's words without the options that are this machine's business.
std::vector<std::string> HostsPlanner::users_words() const {
  const auto& words = request_.words;
  const std::size_t script = script_position(words, flags_.launch_module);
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::string_view option = word.substr(0, word.find('='));
    const bool is_own = i < script && std::find(std::begin(kOwnOptions), std::end(kOwnOptions),
                                                option) != std::end(kOwnOptions);
    if (!is_own)
      kept.emplace_back(word);
    else if (option == word)
      ++i;  // Its value is the next word.
  }
  return kept;
}

std::vector<std::string> HostsPlanner::words_of(std::size_t host) const {
  std::vector<std::string> words = {request_.facts.argv0};
  words.insert(words.end(), chosen_.begin(), chosen_.end());
  words.push_back("--node-rank=" + std::to_string(host));
  if (const auto& slots = plan_.hosts[host].slots; slots && !is_given(&Flags::nproc_per_node))
    words.push_back("--nproc-per-node=" + std::to_string(*slots));
  const std::vector<std::string> users = users_words();
  words.insert(words.end(), users.begin(), users.end());
  return words;
}

/// Otherwise each host would print the same error.
Checked<void> HostsPlanner::check_words(const NodeJob& job) const {
  const std::vector<std::string> words(job.arguments.begin() + 1, job.arguments.end());
  const Environment environment(job.environment.begin(), job.environment.end());
  const auto outcome = parse_command_line(
      {.words = words, .environment = environment, .launch_module = flags_.launch_module});
  if (const auto* error = std::get_if<UsageError>(&outcome)) return FlagError{error->message};
  const auto* flags = std::get_if<Flags>(&outcome);
  if (flags == nullptr) return {};
  const auto plan = plan_launch(*flags, environment, accepting_facts(request_.facts));
  if (!plan) return plan.error();
  return {};
}

Checked<HostsPlan> HostsPlanner::run() {
  if (const auto done = read_hosts(); !done) return done.error();
  if (const auto done = check_others(); !done) return done.error();
  if (const auto done = plan_nodes(); !done) return done.error();
  if (const auto done = plan_environment(); !done) return done.error();
  plan_meeting();
  for (std::size_t host = 0; host < plan_.hosts.size(); ++host)
    plan_.jobs.push_back(
        {.folder = request_.folder, .environment = environment_, .arguments = words_of(host)});
  if (const auto done = check_words(plan_.jobs.front()); !done) return done.error();
  const std::string by_path = "exec muster " + std::string(kNodeOption);
  plan_.program = request_.program;
  plan_.ssh_command = "sh -c '" + by_path + "'";
  // A path with other characters would have to be quoted for whatever shell the user has there.
  if (!request_.program.empty() &&
      request_.program.find_first_not_of(kPlainPath) == std::string::npos)
    plan_.ssh_command = "sh -c 'test -x " + request_.program + " && exec " + request_.program +
                        " " + std::string(kNodeOption) + "; " + by_path + "'";
  return std::move(plan_);
}

}  // namespace

bool names_hosts(const Flags& flags) {
  return flags.hosts || flags.hostfile;
}

Checked<HostsPlan> plan_hosts(const HostsRequest& request) {
  return HostsPlanner(request).run();
}

std::string hosts_text(const HostsPlan& plan) {
  std::string text = "Nothing is started (--dry-run). muster would start itself by ssh on " +
                     std::to_string(plan.hosts.size()) +
                     (plan.hosts.size() == 1 ? " host" : " hosts") + ":\n\n";
  text += "  rendezvous    " + plan.endpoint + "\n  run id        " + plan.run_id +
          "\n  folder        " + plan.jobs.front().folder + "\n";
  for (const auto& [name, value] : plan.jobs.front().environment)
    text.append("  variable      ").append(name).append("=").append(value).append("\n");
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    text += "\n" + plan.hosts[host].target + "\n  ssh          ";
    for (const std::string& word : ssh_arguments(plan, plan.hosts[host]))
      text += " " + (word.find(' ') == std::string::npos ? word : python_repr(word));
    text += "\n  which runs   ";
    for (const std::string& word : plan.jobs[host].arguments)
      text += " " + (word.find(' ') == std::string::npos ? word : python_repr(word));
    text += "\n";
  }
  return text;
}

std::vector<std::string> ssh_arguments(const HostsPlan& plan, const JobHost& host) {
  // ssh asks nothing, gives up a host that does not answer, and notices a connection that is lost.
  return {"ssh",
          "-T",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=15",
          "-o",
          "ServerAliveInterval=15",
          "-o",
          "ServerAliveCountMax=4",
          "-o",
          "ControlMaster=no",
          "--",
          host.target,
          plan.ssh_command};
}

}  // namespace muster
