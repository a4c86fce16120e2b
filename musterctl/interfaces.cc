#include "musterctl/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/system/owned_fd.h"

namespace muster::ctl {
namespace {

constexpr const char* kGlooVariable = "GLOO_SOCKET_IFNAME";
constexpr const char* kNcclVariable = "NCCL_SOCKET_IFNAME";

bool is_link_local(const std::string& address) {
  return address.starts_with("fe80:") || address.starts_with("169.254.");
}

// Prefers IPv4 if there are both, as Gloo and NCCL do.
std::optional<std::string> best_address(const std::vector<std::string>& addresses) {
  std::optional<std::string> best;
  for (const std::string& address : addresses) {
    if (is_link_local(address)) continue;
    if (address.find(':') == std::string::npos) return address;
    if (!best) best = address;
  }
  return best;
}

// Gloo's variable has whole names. NCCL's variable has prefixes of names, or whole names with "="
// in front; a port may follow a name.
std::optional<ChosenInterface> first_of(const char* variable, const std::string& value, bool nccl,
                                        const Interfaces& interfaces) {
  std::string_view list = value;
  if (nccl && list.starts_with('^')) return std::nullopt;  // "^" only excludes interfaces.
  const bool whole = !nccl || list.starts_with('=');
  if (nccl && whole) list.remove_prefix(1);
  while (!list.empty()) {
    std::string word(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    if (nccl) word.resize(std::min(word.size(), word.find(':')));
    for (const auto& [name, addresses] : interfaces) {
      if (word.empty() || (whole ? name != word : !name.starts_with(word))) continue;
      if (const auto address = best_address(addresses))
        return ChosenInterface{std::string(variable) + "=" + value, name, *address};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string numeric_address(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

Interfaces local_interfaces() {
  Interfaces found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6)
      found[one->ifa_name].push_back(numeric_address(one->ifa_addr));
  }
  ::freeifaddrs(list);
  return found;
}

bool loopback_is_down() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool is_there = false;
  bool is_up = false;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if ((one->ifa_flags & IFF_LOOPBACK) == 0) continue;
    is_there = true;
    is_up = is_up || (one->ifa_flags & IFF_UP) != 0;
  }
  ::freeifaddrs(list);
  return is_there && !is_up;
}

int interface_mtu(const std::string& name) {
  const OwnedFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (socket.get() < 0 || name.size() >= sizeof request.ifr_name) return 0;
  name.copy(request.ifr_name, name.size());
  return ::ioctl(socket.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

std::map<std::string, std::string> interface_variables() {
  std::map<std::string, std::string> found;
  for (const char* name : {kGlooVariable, kNcclVariable, "TP_SOCKET_IFNAME"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      found[name] = value;
  return found;
}

std::optional<ChosenInterface> chosen_interface(const std::map<std::string, std::string>& variables,
                                                const Interfaces& interfaces) {
  for (const char* name : {kGlooVariable, kNcclVariable}) {
    const auto found = variables.find(name);
    if (found == variables.end()) continue;
    if (auto chosen = first_of(name, found->second, name == kNcclVariable, interfaces))
      return chosen;
  }
  return std::nullopt;
}

std::string interface_of(const std::string& address, const Interfaces& interfaces) {
  for (const auto& [name, addresses] : interfaces)
    if (std::find(addresses.begin(), addresses.end(), address) != addresses.end()) return name;
  return {};
}

}  // namespace muster::ctl
