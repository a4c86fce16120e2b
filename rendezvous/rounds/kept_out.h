// The nodes that an operator keeps out of the rounds, and the strikes of a run's hosts.
//
// Pure and bounded. An operator names a node as `musterctl nodes` does, or a host by its address.
// A host's address stands for all nodes of that host, also for those that come later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/rounds/limits.h"
#include "rendezvous/rounds/node_name.h"

namespace muster {

/// Nodes and hosts that are kept out of one run.
inline constexpr std::size_t kMaxKeptOut = 128;
/// Hosts of one run whose strikes are kept. Beyond that, the host whose last strike is oldest is
/// forgotten.
inline constexpr std::size_t kMaxStruckHosts = 128;
/// The strikes of one kind of one host are counted up to this number.
inline constexpr int kMaxStrikes = 1'000'000;
/// A node's name: an address, a process id and a number.
inline constexpr std::size_t kMaxNodeTextBytes = kMaxAddressBytes + 48;

enum class KeptOutHow {
  Drained,   // The node stays in the running round, and is not taken into the next one.
  Excluded,  // The node's round restarts without it.
};
/// In records, in the API and for people; in the order of KeptOutHow.
inline constexpr std::array<std::string_view, 2> kKeptOutHows = {"drained", "excluded"};
inline std::string_view to_string(KeptOutHow how) {
  return kKeptOutHows[static_cast<std::size_t>(how)];
}

struct KeptOutEntry {
  std::string node;  // A node's name, or a host's address.
  KeptOutHow how = KeptOutHow::Drained;
  bool operator==(const KeptOutEntry&) const = default;
};

/// Whether an operator's text is this node's name or its host's address.
bool matches_node(std::string_view text, const NodeName& name);

class KeptOut {
 public:
  KeptOut() = default;
  explicit KeptOut(const std::vector<KeptOutEntry>& entries);

  /// An excluded node stays excluded. Does nothing if there are kMaxKeptOut other entries.
  void add(const std::string& node, KeptOutHow how);
  /// Removes the entry; for a host, also the entries of its nodes. Returns whether there was one.
  bool remove(const std::string& node);
  bool has_room_for(const std::string& node) const;
  /// The entry that keeps the node out; empty if there is none. If both the node and its host have
  /// an entry, the stronger one.
  std::optional<KeptOutEntry> find(const NodeName& name) const;
  bool empty() const { return entries_.empty(); }
  /// Sorted by name.
  std::vector<KeptOutEntry> entries() const;

 private:
  std::map<std::string, KeptOutHow, std::less<>> entries_;
};

/// How often nodes of one host have stopped the run for the other nodes.
struct Strikes {
  int failures = 0;  // Workers failed, and the round restarted or the run ended.
  int losses = 0;    // A node was lost while it was in a round.
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
  /// The host with the newest strike comes last.
  std::vector<HostStrikes> hosts() const;

 private:
  struct Counted {
    Strikes strikes;
    std::uint64_t last = 0;  // The number of this host's last strike among all strikes.
  };
  static void add_one(int& strikes) { strikes = strikes < kMaxStrikes ? strikes + 1 : strikes; }
  Strikes& entry_of(const std::string& host);

  std::map<std::string, Counted, std::less<>> hosts_;
  std::uint64_t strikes_ = 0;
};

}  // namespace muster
