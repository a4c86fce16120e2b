// The program muster, from the command line to the exit status. Under the name torchrun it behaves
// the same; under the name muster-launch it behaves as `python -m torch.distributed.launch`.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <boost/system/system_error.hpp>
#include <spdlog/spdlog.h>

#include "agent/io/failure_output.h"
#include "agent/io/preflight.h"
#include "agent/io/run_job.h"
#include "base/limit_advice.h"
#include "base/system/first_process.h"
#include "base/system/standard_output.h"
#include "launcher/argparse.h"
#include "launcher/flags.h"
#include "launcher/help.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/hosts/node_message.h"
#include "launcher/hosts/node_of_hosts.h"
#include "launcher/hosts/ssh_hosts.h"
#include "launcher/launch_plan.h"
#include "launcher/log_setup.h"
#include "launcher/node_facts.h"
#include "launcher/plan_text.h"
#include "launcher/rendezvous_setup.h"
#include "rendezvous/access/openssl_token.h"
#include "rendezvous/server/c10d_allow.h"
#include "rendezvous/state/etcd/etcd_login.h"
#include "rendezvous/tls/tls_socket.h"

namespace muster {
namespace {

constexpr int kUsageExit = 2;    // argparse's exit status.
constexpr int kFailureExit = 1;  // torchrun's exit status for every other failure.

std::vector<std::string> inherited_environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry)
    variables.emplace_back(*entry);
  return variables;
}

int fail(const std::string& message) {
  spdlog::error("{}", message);
  return kFailureExit;
}

// Ends muster before the job starts. The failure report and the launcher's own error file get the
// message, too, if they are requested.
int refuse(const Flags& flags, const Environment& environment, const std::string& message) {
  ::signal(SIGPIPE, SIG_IGN);  // A file may be a FIFO whose reader ends.
  if (!flags.dry_run) {
    AgentOptions options;
    options.entry_point = flags.script;
    options.failure_report = flags.failure_report;
    options.own_error_file = own_error_file(flags, environment);
    const auto report = [&options, &message] {
      report_early_end(options, refusal(message));
      return std::string();
    };
    if (!ask_storage(report)) spdlog::error("no report was written: its storage does not answer");
  }
  return fail(message);
}

// Makes the queries about files return in time, because a process that waits for storage may handle
// no signal. If the storage of a file does not answer, muster starts the workers without a check of
// the file: they then wait for that storage, and muster can end the job.
NodeFacts in_time(NodeFacts facts) {
  const auto skip_check = [](const std::string& path) {
    spdlog::warn("{} was not checked: its storage does not answer", path);
  };
  const auto first_in_time = [skip_check](const FirstOfPaths& ask) -> FirstOfPaths {
    return [ask, skip_check](const std::vector<std::string>& paths) -> std::string {
      if (const auto path = ask_storage([&] { return ask(paths); })) return *path;
      for (const std::string& path : paths) {  // Finds out which of them has such storage.
        const auto answer = ask_storage([&] { return ask({path}); });
        if (!answer) skip_check(path);
        if (!answer || !answer->empty()) return path;
      }
      return {};
    };
  };
  facts.first_executable = first_in_time(facts.first_executable);
  facts.first_existing = first_in_time(facts.first_existing);
  facts.script_problem = [ask = facts.script_problem,
                          skip_check](const std::string& script) -> std::optional<std::string> {
    auto answer = ask_storage([&] { return ask(script).value_or(std::string()); });
    if (!answer) skip_check(script);
    if (!answer || answer->empty()) return std::nullopt;
    return answer;
  };
  facts.read_file = [ask = facts.read_file](const std::string& path) -> std::optional<std::string> {
    const auto answer = ask_storage([&] {  // The first character says whether there is a text.
      const auto text = ask(path);
      return text ? "+" + *text : std::string();
    });
    if (!answer || answer->empty()) return std::nullopt;
    return answer->substr(1);
  };
  return facts;
}

int print(const std::string& text) {
  return print_all("muster", text);
}

// Finds share/muster/python/ beside bin/: a build folder and an installation have the same layout.
int print_python_entry() {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  const fs::path folder = program.parent_path().parent_path() / "share/muster/python";
  if (!fs::exists(folder / "muster_entry.py", ec))
    return fail("there is no " + (folder / "muster_entry.py").string() +
                ": it is installed with muster, beside bin/");
  return print(folder.string() + "\n");
}

/// The reason why this node must not take part; empty: it may, or --preflight is not given.
std::string preflight_failure(const Flags& flags) {
  if (!flags.preflight) return {};
  std::error_code ec;
  const auto muster = std::filesystem::read_symlink("/proc/self/exe", ec);
  const Preflight found =
      run_preflight((muster.parent_path() / "musterctl").string(), inherited_environment());
  for (const std::string& line : found.warnings)
    spdlog::warn("preflight: {}", line);
  if (found.failure.empty()) return {};
  return flags.name_of(&Flags::preflight) +
         ": this machine takes no part in the job: " + found.failure;
}

/// Applies --c10d-allow, or its default.
Checked<void> set_up_c10d_allow(const Flags& flags, RendezvousOptions& rendezvous) {
  // A node that hosts with TLS asks for client certificates.
  const bool nodes_prove = rendezvous.token || rendezvous.host_tls;
  C10dAllow allow = agent_c10d_allow(nodes_prove);
  if (flags.c10d_allow) {
    const std::string name = flags.name_of(&Flags::c10d_allow);
    auto given = parse_c10d_allow(*flags.c10d_allow);
    if (!given) return FlagError{name + ": " + given.error().reason};
    if (given->members && !nodes_prove)
      return FlagError{name +
                       ": members are known by their token or certificate; give --rdzv-token-file "
                       "or --rdzv-tls-cert, too, or list networks"};
    allow = *std::move(given);
  }
  rendezvous.c10d_allow = std::make_shared<const C10dAllow>(std::move(allow));
  return {};
}

Checked<void> set_up_tls(RendezvousOptions& rendezvous) {
  if (rendezvous.tls_ca.empty()) return {};
  const TlsFiles files{.certificate = rendezvous.tls_certificate,
                       .key = rendezvous.tls_key,
                       .ca = rendezvous.tls_ca};
  auto context = make_tls_context(TlsSide::Client, files);
  if (!context) return FlagError{context.error().reason};
  rendezvous.tls = make_tls_client(*std::move(context));
  if (files.certificate.empty()) return {};
  auto as_host = make_tls_context(TlsSide::Server, files);
  if (!as_host) return FlagError{as_host.error().reason};
  rendezvous.host_tls = make_tls_server(*std::move(as_host));
  return {};
}

/// Sets up TLS to etcd.
Checked<void> set_up_etcd_tls(const Flags& flags, EtcdRendezvousOptions& etcd) {
  if (!etcd.speaks_tls) return {};
  auto context = make_tls_context(
      TlsSide::Client,
      etcd_tls_files(
          {.certificate = etcd.tls_certificate, .key = etcd.tls_key, .ca = etcd.tls_ca}));
  if (!context)
    return FlagError{
        flags.name_of(&Flags::rdzv_conf) +
        ": protocol=https, with the files of cacert, cert and key: " + context.error().reason};
  etcd.tls = make_tls_client(*std::move(context));
  return {};
}

/// Sets up the token, TLS and --c10d-allow, which decide who may take part in a rendezvous over a
/// network. The token is read here and not in the agent, whose loop must not wait for a file.
Checked<void> set_up_access(const Flags& flags, RendezvousOptions& rendezvous) {
  const bool alone = rendezvous.standalone && rendezvous.http.empty();
  if (alone || rendezvous.backend == RendezvousBackend::Static) return {};
  if (rendezvous.token_file.empty())
    rendezvous.token_file = credential_token_file().value_or(std::string());
  auto token = load_token(rendezvous.token_file);
  if (!token) return FlagError{token.error().reason};
  rendezvous.token = *std::move(token);
  if (const auto done = set_up_tls(rendezvous); !done) return done;
  if (const auto done = set_up_etcd_tls(flags, rendezvous.etcd); !done) return done;
  if (auto allowed = check_http_access(flags, rendezvous); !allowed) return allowed;
  return set_up_c10d_allow(flags, rendezvous);
}

/// --hosts: this process runs no worker, but starts muster on the hosts.
int run_hosts(const HostsRequest& request) {
  const Checked<HostsPlan> plan = plan_hosts(request);
  if (!plan) return refuse(request.flags, request.environment, plan.error().message);
  if (request.flags.dry_run) return print(hosts_text(*plan));
  return run_on_hosts(*plan);
}

/// The path of a folder or program; empty if the kernel does not tell it.
std::string path_text(const std::filesystem::path& path, const std::error_code& error) {
  return error ? std::string() : path.string();
}

/// These actions stay until the front has blocked the signals: start-up, --preflight and slow
/// storage may take long.
[[gnu::constructor(101)]] void prepare_first_process() {
  end_by_signals_as_first_process();
}

int run(int argc, char** argv) {
  ::signal(SIGCHLD, SIG_DFL);  // A parent may have left it ignored: waitid() would find no child.
  const std::string argv0 = argc > 0 ? argv[0] : "muster";
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  const ProgramName program = program_name(argv0);
  const Environment environment = read_environment();

  if (words == std::vector<std::string>{std::string(kNodeOption)}) return run_node_of_hosts();
  const ParseOutcome outcome = parse_command_line({words, environment, program.launch_module});
  const auto* early = std::get_if<EarlyExit>(&outcome);
  if (early != nullptr && early->what == Prints::PythonEntry) return print_python_entry();
  if (early != nullptr) return print(early_exit_text(*early, program, terminal_width(environment)));
  if (const auto* error = std::get_if<UsageError>(&outcome)) {
    std::fputs(usage_error_text(program, *error).c_str(), stderr);
    return kUsageExit;
  }
  const Flags& flags = std::get<Flags>(outcome);

  set_up_logging(environment);
  if (names_hosts(flags)) {
    std::error_code folder_error, program_error;
    const auto folder = std::filesystem::current_path(folder_error);
    const auto path = std::filesystem::read_symlink("/proc/self/exe", program_error);
    return run_hosts({.flags = flags,
                      .words = words,
                      .environment = environment,
                      .facts = in_time(node_facts(environment, argv0)),
                      .folder = path_text(folder, folder_error),
                      .program = path_text(path, program_error)});
  }
  if (!flags.exported.empty())
    return refuse(flags, environment,
                  flags.name_of(&Flags::exported) + " has a meaning with --hosts only");
  Checked<LaunchPlan> plan =
      plan_launch(flags, environment, in_time(node_facts(environment, argv0)));
  if (!plan) return refuse(flags, environment, plan.error().message);
  if (const auto done = set_up_access(flags, plan->agent.rendezvous); !done)
    return refuse(flags, environment, done.error().message);
  for (const std::string& line : plan->warnings)
    spdlog::warn("{}", line);
  for (const std::string& line : plan->notices)
    spdlog::warn("{}", line);
  if (flags.dry_run)
    return print(dry_run_text(plan->agent, inherited_environment(), plan->cluster));
  if (const auto reason = reason_not_to_run()) return refuse(flags, environment, *reason);
  if (const auto reason = preflight_failure(flags); !reason.empty())
    return refuse(flags, environment, reason);
  for (const std::string& line : plan->cluster)
    spdlog::info("--cluster: {}", line);
  for (const std::string& line : launch_text(flags, plan->agent))
    spdlog::info("{}", line);
  return run_job(plan->agent, inherited_environment());
}

int fail_to_start(const char* what, int code) {
  std::fprintf(stderr, "muster: %s%s\n", what, start_limit_advice(code).c_str());
  return kFailureExit;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  try {
    return muster::run(argc, argv);
  } catch (const boost::system::system_error& error) {
    return muster::fail_to_start(error.what(), error.code().value());
  } catch (const std::system_error& error) {
    return muster::fail_to_start(error.what(), error.code().value());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster: %s\n", error.what());
    return muster::kFailureExit;
  }
}
