// The host that a node has met, and whether another one that it finds stands for the same runs.
//
// Several endpoints, and a name with several addresses, are for hosts that share one state. Hosts
// that share nothing are a trap: each of them makes a world of its own for a run, and each takes
// the other's nodes for lost. docs/rendezvous.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster {

/// What a host says about its state, and where it was met.
struct MetHost {
  std::string place;     // "address:port", numeric.
  std::string state_id;  // Empty: unknown, as of an older host.
  bool state_is_shared = false;

  /// Whether it certainly has another state.
  bool differs_from(const MetHost& other) const;
};

class KnownHost {
 public:
  /// This node goes on with the host.
  void meet(MetHost host);
  const std::optional<MetHost>& host() const { return host_; }

  /// Why this node does not go on with `found`; empty: it does. A host at the same place is the
  /// known one, which may have been started again without its state. `places`: where a host may be
  /// now, by all endpoints. If the known host's place is none of them any more, the host has moved.
  std::string why_not(const MetHost& found, std::span<const std::string> places) const;

 private:
  std::optional<MetHost> host_;
};

/// Why nodes of one run may not use both hosts; empty: they may, as far as is known.
std::string why_not_both(const MetHost& one, const MetHost& other);

}  // namespace muster
