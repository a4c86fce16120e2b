// The name of this machine, its network interfaces, and the one that the variables of Gloo and NCCL
// choose.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster::ctl {

/// The kernel's host name.
std::string own_host_name();
/// The address as numeric text. A link-local IPv6 address has its interface behind it, as in
/// "fe80::1%eth0".
std::string numeric_address(const sockaddr* address);

/// The addresses of each interface that is up, by the interface's name.
using Interfaces = std::map<std::string, std::vector<std::string>>;
Interfaces local_interfaces();
/// Whether there is a loopback interface and none that is up: nothing on this machine can then
/// reach 127.0.0.1.
bool loopback_is_down();
/// The MTU of the interface; 0 if there is no such interface.
int interface_mtu(const std::string& name);

/// The variables of this environment that choose interfaces, with their values.
std::map<std::string, std::string> interface_variables();

struct ChosenInterface {
  std::string variable;  // "GLOO_SOCKET_IFNAME=eth0"
  std::string name;
  std::string address;
};
/// The first interface that Gloo's variable names, or else NCCL's. Nothing: neither variable names
/// an interface that is up and has an address that other nodes can reach. Pure.
std::optional<ChosenInterface> chosen_interface(const std::map<std::string, std::string>& variables,
                                                const Interfaces& interfaces);
/// The interface that has this address; empty: none.
std::string interface_of(const std::string& address, const Interfaces& interfaces);

}  // namespace muster::ctl
