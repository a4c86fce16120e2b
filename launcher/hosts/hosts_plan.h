// What --hosts and --hostfile mean: which hosts, and what muster on each of them gets to do.
//
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/flag_error.h"
#include "launcher/flags.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/node_message.h"
#include "launcher/launch_plan.h"

namespace muster {

/// The job of several hosts. `jobs` has one element for each host.
struct HostsPlan {
  std::vector<JobHost> hosts;
  std::vector<NodeJob> jobs;
  int min_nodes = 1;        // Below this number of hosts the job cannot go on.
  std::string run_id;       // For people.
  std::string endpoint;     // For people.
  std::string program;      // HostsRequest::program
  std::string ssh_command;  // What ssh runs on each host.
};

struct HostsRequest {
  const Flags& flags;
  const std::vector<std::string>& words;  // The command line, without the program's name.
  const Environment& environment;
  const NodeFacts& facts;
  std::string folder;   // The working folder, which the hosts must have, too.
  std::string program;  // The path of this muster: tried on each host before its PATH.
};

/// Whether the flags name hosts.
bool names_hosts(const Flags& flags);
/// Checks the options as the first host will, as far as that does not depend on the host.
Checked<HostsPlan> plan_hosts(const HostsRequest& request);
/// For --dry-run.
std::string hosts_text(const HostsPlan& plan);

/// ssh and its arguments for one host.
std::vector<std::string> ssh_arguments(const HostsPlan& plan, const JobHost& host);

}  // namespace muster
