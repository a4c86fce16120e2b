#include "musterctl/doctor_command.h"

#include <sstream>
#include <utility>

#include "musterctl/doctor.h"
#include "musterctl/doctor_facts.h"
#include "musterctl/doctor_nodes.h"

namespace muster::ctl {
namespace {

void add_nodes_option(CLI::App& command, std::string_view option, DoctorArguments& arguments) {
  if (option == "--nodes")
    command
        .add_option(
            "--nodes", arguments.nodes,
            "Wait until so many nodes run this command, and test the connections between them")
        ->type_name("N")
        ->check(CLI::Range(2, kMaxDoctorNodes));
  if (option == "--rdzv-id")
    command
        .add_option("--rdzv-id", arguments.run,
                    "With --nodes: the name by which the nodes find each other")
        ->type_name("ID")
        ->capture_default_str();
  if (option == "--local-addr")
    command
        .add_option("--local-addr", arguments.local_addr,
                    "With --nodes: the address by which the others reach this node, as for muster")
        ->type_name("ADDRESS");
  if (option == "--no-torch")
    command.add_flag("--no-torch", arguments.no_torch, "With --nodes: no all-reduce");
}

NodesRequest nodes_request(const DoctorArguments& arguments, const DoctorContext& context,
                           const DoctorFacts& facts) {
  NodesRequest request{.nodes = arguments.nodes,
                       .endpoint = arguments.rdzv_endpoint,
                       .run = arguments.run,
                       .local_addr = arguments.local_addr,
                       .token_file = context.token_file,
                       .tls = context.tls,
                       .no_torch = arguments.no_torch,
                       .peer = {.torch = facts.torch_version, .nccl = facts.nccl_version}};
  if (arguments.no_torch)
    request.peer.no_python = "--no-torch";
  else if (facts.torch_version.empty())
    request.peer.no_python = "there is no torch";
  else
    request.peer.python = facts.python;
  return request;
}

}  // namespace

void add_doctor_option(CLI::App& command, std::string_view option, DoctorArguments& arguments) {
  add_nodes_option(command, option, arguments);
  if (option == "--rdzv-endpoint")
    command
        .add_option("--rdzv-endpoint", arguments.rdzv_endpoint,
                    "Where the nodes of a job meet: is it reached from here?")
        ->type_name("HOST:PORT[,...]");
  if (option == "--quick")
    command.add_flag(
        "--quick", arguments.quick,
        "This machine, and the endpoints of --rdzv-endpoint if it is given: no program is "
        "started, and musterd's HTTP is not asked");
  if (option == "--log-dir")
    command.add_option("--log-dir", arguments.log_dir, "Is there room for the logs of a job?")
        ->type_name("FOLDER");
  if (option == "--checkpoint-dir")
    command
        .add_option("--checkpoint-dir", arguments.checkpoint_dir,
                    "Is there room for the checkpoints of a job?")
        ->type_name("FOLDER");
}

CLI::App& add_doctor_peer(CLI::App& app, DoctorPeerOptions& options) {
  CLI::App& command = *app.add_subcommand("doctor-peer")->group("");
  command.add_option("--python", options.python);
  command.add_option("--no-python", options.no_python);
  command.add_option("--torch", options.torch);
  command.add_option("--nccl", options.nccl);
  return command;
}

DoctorAnswer run_doctor(const DoctorArguments& arguments, const DoctorContext& context) {
  const bool several = arguments.nodes > 0;
  if (several && arguments.quick)
    return {.usage_error = "--quick looks at this machine alone: leave out --nodes"};
  if (several && arguments.rdzv_endpoint.empty())
    return {.usage_error = "--nodes needs --rdzv-endpoint HOST:PORT, where the nodes meet"};
  DoctorTargets targets{.musterd = context.musterd,
                        .token = context.token,
                        .run = arguments.run,
                        .tls = context.tls,
                        .log_dir = arguments.log_dir,
                        .checkpoint_dir = arguments.checkpoint_dir,
                        .quick = arguments.quick};
  // With several nodes, the endpoint is not checked here: if one of them becomes the host, no
  // process listens there yet. The meeting of the nodes checks it.
  if (!arguments.rdzv_endpoint.empty() && !several) {
    std::istringstream endpoints(arguments.rdzv_endpoint);
    for (std::string one; std::getline(endpoints, one, ',');) {
      const auto parsed = parse_endpoint(one);
      if (!parsed) return {.usage_error = parsed.error().reason};
      targets.rendezvous.push_back(*parsed);
    }
  }
  const DoctorFacts facts = gather_facts(targets);
  auto checks = judge(facts);
  std::string peers;
  if (several) {
    const PairFacts pairs = test_nodes(nodes_request(arguments, context, facts));
    for (Check& check : judge_pairs(pairs))
      checks.push_back(std::move(check));
    peers = context.json ? pairs_json(pairs) : pairs_text(pairs);
  }
  const std::string above = peers.empty() ? peers : peers + "\n";
  const bool ok = !has_failure(checks);
  if (context.json) return {.text = checks_json(checks, peers), .ok = ok};
  std::string text = above + checks_text(checks, context.columns);
  if (several && ok) text += std::to_string(arguments.nodes) + " nodes reach each other\n";
  return {.text = std::move(text), .ok = ok};
}

}  // namespace muster::ctl
