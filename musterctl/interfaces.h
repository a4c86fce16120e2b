// The name of this machine, its network interfaces, and which of them variables of Gloo and NCCL
// choose.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster::ctl {

/// As the kernel has it.
std::string own_host_name();
/// Numeric; without the interface of a link-local one.
std::string numeric_address(const sockaddr* address);

/// By name: the addresses of those that are up.
using Interfaces = std::map<std::string, std::vector<std::string>>;
Interfaces local_interfaces();
/// Its MTU; 0 if there is no such interface.
int interface_mtu(const std::string& name);

/// The variables of this environment that choose interfaces, with their values.
std::map<std::string, std::string> interface_variables();

struct ChosenInterface {
  std::string variable;  // "GLOO_SOCKET_IFNAME=eth0"
  std::string name;
  std::string address;
};
/// The first interface that Gloo's variable names, else NCCL's. Nothing: neither chooses one that
/// is up and has an address which others can reach. Pure.
std::optional<ChosenInterface> chosen_interface(const std::map<std::string, std::string>& variables,
                                                const Interfaces& interfaces);
/// The interface that has this address; empty: none.
std::string interface_of(const std::string& address, const Interfaces& interfaces);

}  // namespace muster::ctl
