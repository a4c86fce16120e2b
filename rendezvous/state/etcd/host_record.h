// The value of the leader's key in etcd if agents host the rendezvous: the address of the host.
//
// Pure: JSON text <-> a plain value. docs/etcd.md, "Agents that elect their host".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

struct HostRecord {
  std::string name;       // The name of the agent's process, for people.
  std::string host = {};  // A name or a numeric address. Empty: the host does not listen yet.
  std::uint16_t port = 0;
  bool operator==(const HostRecord&) const = default;
};

inline constexpr std::size_t kMaxHostRecordBytes = 4096;

std::string encode_host_record(const HostRecord& record);
/// Empty if no muster agent has written the text.
std::optional<HostRecord> decode_host_record(std::string_view text);

}  // namespace muster
