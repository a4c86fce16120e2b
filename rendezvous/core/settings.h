// What a rendezvous is told: --nnodes and --rdzv-conf, validated once.
//
// Keys, defaults and checks are torchrun 2.13's; keys of our own are marked. Unknown keys are an
// error here (torchrun ignores them).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "rendezvous/core/time.h"

namespace muster {

/// What a node that joins a running job does to the others.
enum class ScalePolicy {
  Now,        // They restart with it at once, as under torchrun.
  AtRestart,  // It is in from the next restart on.
  Never,      // It only ever replaces a node that is gone.
};
std::string_view to_string(ScalePolicy policy);

/// What all nodes of a run must agree on: the first one's count, others are compared with it.
struct RunSettings {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  ScalePolicy scale_policy = ScalePolicy::Now;
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call_timeout = std::chrono::seconds(30);
  bool operator==(const RunSettings&) const = default;
};

/// What differs, as people write it: "--nnodes=2:4 (here) against 2:2"; empty if nothing does.
std::string describe_difference(const RunSettings& here, const RunSettings& there);

struct RendezvousSettings {
  std::string run_id;
  RunSettings run;
  Duration close_timeout = std::chrono::seconds(30);
  /// torchrun gives a keep-alive so long before it lets it be until the next one. Nothing here
  /// does.
  std::optional<Duration> heartbeat_timeout;
  Duration keep_alive_interval = std::chrono::seconds(5);
  int keep_alive_max_attempt = 3;
  Duration read_timeout = std::chrono::seconds(60);
  std::optional<bool> is_host;  // Nothing: to be found out.
  enum class StoreType { Tcp, File };
  StoreType store_type = StoreType::Tcp;
  Duration timeout = std::chrono::seconds(900);  // static: of its store.
  /// Ours: a muster node that was not heard for this long is lost.
  Duration lease = std::chrono::seconds(5);
  bool lease_given = false;
  bool spare = false;  // Ours: takes part only when somebody is missing.
  /// Ours: how long the workers may go on while the rendezvous is away. Nothing: without a limit
  /// where the rendezvous outlives the nodes (musterd), elsewhere for read_timeout.
  std::optional<Duration> host_absent;

  /// How long a torchrun node may be silent, as torchrun counts.
  Duration dead_after() const { return keep_alive_interval * keep_alive_max_attempt; }
};

struct SettingsRequest {
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
};

/// A sentence for the user.
struct SettingsError {
  std::string reason;
};

/// From the launcher's numbers and the map of --rdzv-conf.
boost::system::result<RendezvousSettings, SettingsError> make_settings(
    const SettingsRequest& request, const std::map<std::string, std::string>& conf);

}  // namespace muster
