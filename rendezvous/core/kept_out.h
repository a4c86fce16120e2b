// Which nodes an operator keeps out of the rounds, and how often the hosts of a run have failed it.
//
// Pure and bounded. An operator names a node as `musterctl nodes` does, or a host by its address:
// then all nodes of that host are meant, those that come later, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/limits.h"
#include "rendezvous/core/rendezvous_state.h"

namespace muster {

/// Nodes and hosts that are kept out of one run.
inline constexpr std::size_t kMaxKeptOut = 128;
/// Hosts of one run whose strikes are kept; beyond, the host that was struck first is forgotten.
inline constexpr std::size_t kMaxStruckHosts = 128;
/// One kind of strikes of one host is counted up to this.
inline constexpr int kMostStrikes = 1'000'000;
/// A node's name: an address, a process id and a number.
inline constexpr std::size_t kMaxNodeTextBytes = kMaxAddressBytes + 48;

enum class KeptOutHow {
  Drained,   // It stays in the round that runs, and is not taken into the next one.
  Excluded,  // A round that it is in restarts without it.
};

struct KeptOutEntry {
  std::string node;  // A node's name, or a host's address.
  KeptOutHow how = KeptOutHow::Drained;
  bool operator==(const KeptOutEntry&) const = default;
};

/// Whether an operator's text means this node: its name, or its host's address.
bool means(std::string_view text, const NodeName& name);

class KeptOut {
 public:
  KeptOut() = default;
  explicit KeptOut(const std::vector<KeptOutEntry>& entries);

  /// A node that is excluded stays excluded. Does nothing if there are kMaxKeptOut others.
  void add(const std::string& node, KeptOutHow how);
  /// Removes the entry; of a host also those of its nodes. Whether there was one.
  bool remove(const std::string& node);
  bool has_room_for(const std::string& node) const;
  /// The entry that keeps the node out, the stronger one if its host has another; or nothing.
  std::optional<KeptOutEntry> find(const NodeName& name) const;
  bool empty() const { return entries_.empty(); }
  /// By name.
  std::vector<KeptOutEntry> entries() const;

 private:
  std::map<std::string, KeptOutHow, std::less<>> entries_;
};

/// What a host's nodes have cost the others.
struct Strikes {
  int failures = 0;  // Their workers failed, and the round restarted or the run ended.
  int losses = 0;    // They were lost while they were in a round.
  bool operator==(const Strikes&) const = default;
};
struct HostStrikes {
  std::string host;
  Strikes strikes;
  bool operator==(const HostStrikes&) const = default;
};

class StrikeList {
 public:
  StrikeList() = default;
  explicit StrikeList(const std::vector<HostStrikes>& hosts);

  void count_failure(const std::string& host) { add_one(entry_of(host).failures); }
  void count_loss(const std::string& host) { add_one(entry_of(host).losses); }
  Strikes find(std::string_view host) const;
  /// The host that was struck last comes last.
  std::vector<HostStrikes> hosts() const;

 private:
  struct Counted {
    Strikes strikes;
    std::uint64_t last = 0;  // Of all strikes, the number of this host's last one.
  };
  static void add_one(int& strikes) { strikes = strikes < kMostStrikes ? strikes + 1 : strikes; }
  Strikes& entry_of(const std::string& host);

  std::map<std::string, Counted, std::less<>> hosts_;
  std::uint64_t strikes_ = 0;
};

}  // namespace muster
