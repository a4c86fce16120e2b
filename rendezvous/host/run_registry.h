// The runs of a host: by key, by deadline, and by the address that began each of them.
//
// Pure. A run is idle if it has no nodes and no connections: it may be forgotten to make room.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "rendezvous/host/hosted_run.h"

namespace muster {

class RunRegistry {
 public:
  struct Limits {
    std::size_t runs = 0;
    std::size_t runs_per_peer = 0;
  };

  /// Null if there is no run of this key.
  HostedRun* find(std::string_view key) const;
  /// The key must be free. HostedRun::peer counts from now on, and must not change.
  HostedRun& add(std::unique_ptr<HostedRun> run);
  void erase(HostedRun& run);

  bool has_room(const std::string& peer, const Limits& limits) const;
  /// Of the runs whose end makes room for a run of this peer: the one that has been idle longest.
  /// Null if all of them are in use.
  HostedRun* longest_idle(const std::string& peer, const Limits& limits) const;
  void set_idle(HostedRun& run, std::optional<Instant> since);

  void set_deadline(HostedRun& run, std::optional<Instant> deadline);
  std::optional<Instant> next_deadline() const;
  /// The keys of the runs whose deadlines are over, the earliest first.
  std::vector<std::string> due(Instant now) const;

  std::size_t size() const { return runs_.size(); }
  // Pairs of key and run, in the order of the keys.
  auto begin() const { return runs_.begin(); }
  auto end() const { return runs_.end(); }

 private:
  /// The longest idle first.
  using ByTime = std::set<std::pair<Instant, std::string>>;
  struct Peer {
    std::size_t runs = 0;
    ByTime idle;
  };
  static void move(ByTime& runs, const std::string& key, const std::optional<Instant>& from,
                   const std::optional<Instant>& to);
  bool is_peer_full(const std::string& peer, const Limits& limits) const;

  std::map<std::string, std::unique_ptr<HostedRun>, std::less<>> runs_;
  ByTime deadlines_;
  ByTime idle_;
  std::map<std::string, Peer> peers_;  // By address, for existing runs only.
};

}  // namespace muster
