// libFuzzer: texts of the kernel and of command lines: /proc/PID/stat and its like, the kernel's
// log, --c10d-allow, --tls-allow, the answers of a --logs-specs plug-in.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/logs_specs.h"
#include "agent/core/oom_evidence.h"
#include "agent/core/stat_text.h"
#include "base/proc_cgroup.h"
#include "musterctl/gpu_errors.h"
#include "musterctl/process_texts.h"
#include "rendezvous/access/tls_allow.h"
#include "rendezvous/server/c10d_allow.h"
#include "tests/fuzz/shown_text.h"

namespace {

using namespace muster;
namespace ip = boost::asio::ip;

void read_proc(std::string_view text) {
  const std::string whole(text);
  static_cast<void>(start_in(whole));
  static_cast<void>(parse_stat(whole));
  static_cast<void>(bytes_written_in(whole));
  if (const auto fields = ctl::parse_stat_fields(text))
    if (!(fields->cpu_ticks >= 0) || text.find(fields->name) == std::string_view::npos)
      std::abort();
  for (const auto& [name, value] : ctl::parse_environment(text))
    if (name.find('=') != std::string::npos || (name + value).find('\0') != std::string::npos)
      std::abort();
  // At most two words of the command line, and never one behind -c.
  if (ctl::command_text(text).size() > 500) std::abort();
  if (ctl::command_text(std::string("python\0-c\0", 10) + whole) != "python -c") std::abort();
}

void read_kernel_log(std::string_view text) {
  const auto xids = ctl::xids_in(text);
  if (xids.size() > ctl::kMaxXids) std::abort();
  for (const ctl::Xid& xid : xids) {
    testing::check_shown_line(xid.device);
    testing::check_shown_line(xid.text);
    if (xid.times == 0) std::abort();
  }
  static_cast<void>(controller_cgroup(text, "memory"));
  static_cast<void>(oom_kill_count(text));
  if (const auto message = kernel_message(text))
    if (message->text.find('\n') != std::string_view::npos) std::abort();
  if (const auto victim = oom_victim(text)) {
    const OomFacts facts{.kernel_lines = {std::string(text)}};
    if (oom_evidence(facts, *victim, 1).empty()) std::abort();
  }
}

void read_c10d_allow(std::string_view text) {
  const auto allow = parse_c10d_allow(text);
  if (!allow) {
    testing::check_shown(allow.error().reason);
    return;
  }
  const std::size_t networks = allow->networks_v4.size() + allow->networks_v6.size();
  if (networks > kMaxC10dNetworks || allow->text != text) std::abort();
  // An address is listed if it is in one of the networks, computed in another way.
  for (const char* address : {"10.0.0.7", "127.0.0.1", "192.168.1.1"}) {
    const auto v4 = ip::make_address_v4(address);
    bool listed = allow->any || (allow->loopback && v4.is_loopback());
    for (const auto& network : allow->networks_v4) {
      const std::uint64_t mask = ~std::uint64_t{0} << (32 - network.prefix_length());
      listed = listed || ((network.address().to_uint() ^ v4.to_uint()) & mask & 0xffffffff) == 0;
    }
    if (allow->lists(v4) != listed) std::abort();
  }
  if (C10dDoor(*allow).admits(ip::make_address("10.9.8.7")) !=
      allow->lists(ip::make_address("10.9.8.7")))
    std::abort();  // Nobody is a member yet.
}

void read_tls_allow(std::string_view text) {
  std::vector<std::string> rules;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    rules.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto allow = parse_tls_allow(rules);
  if (allow) {
    if (allow->rules().size() != rules.size()) std::abort();
    for (const TlsAllow::Rule& rule : allow->rules())
      if (rule.runs.empty() || rule.names.size() > kMaxTlsAllowNames) std::abort();
    if (!rules.empty() && allow->scope_of({}).all) std::abort();
  } else if (allow.error().reason.empty()) {
    std::abort();
  }
  if (const auto names = parse_tls_allow_names(text); names && names->rules().size() != 1)
    std::abort();
  if (const auto name = to_dns_name(text))
    if (name->size() > kMaxDnsNameBytes || to_dns_name(*name) != name) std::abort();
}

void read_logs_specs(std::string_view text) {
  if (const auto ready = read_logs_specs_ready(text); !ready && ready.error().text.empty())
    std::abort();
  AgentOptions options;
  options.local_world_size = 2;
  const auto dest = read_logs_dest(text, options);
  if (!dest) return;
  if (dest->stdouts.size() != 2 || dest->stderrs.size() != 2 || dest->environment.size() != 2)
    std::abort();
  for (const EnvironmentChanges& changes : dest->environment)
    for (const auto& [name, value] : changes.set)
      if (name.empty() || name.find('=') != std::string::npos ||
          value.find('\0') != std::string::npos)
        std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_proc(text);
  read_kernel_log(text);
  read_c10d_allow(text);
  read_tls_allow(text);
  read_logs_specs(text);
  return 0;
}
