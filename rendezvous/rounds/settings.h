// The settings of a rendezvous: --nnodes and --rdzv-conf, validated once.
//
// Keys, defaults and checks are torchrun 2.15's; keys that only muster has are marked. Unknown keys
// are an error here (torchrun ignores them).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "base/time.h"
#include "rendezvous/rounds/restart_policy.h"

namespace muster {

/// How a node that joins a running job affects the other nodes.
enum class ScalePolicy {
  Now,        // The others restart with it at once, as under torchrun.
  AtRestart,  // The node takes part from the next restart on.
  Never,      // The node only replaces a node that is gone.
};
std::string_view to_string(ScalePolicy policy);

/// What follows a notice that nodes of the round will go, when all nodes have saved, and at the
/// deadline.
enum class OnNotice {
  Auto,    // Shrink if enough other nodes are there for the next round, otherwise Stop.
  Stop,    // The run ends.
  Shrink,  // The round restarts without the nodes that will go.
};
std::string_view to_string(OnNotice policy);

/// The settings on which all nodes of a run must agree: those of the first node apply, and the
/// others' are compared with them.
struct RunSettings {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  ScalePolicy scale_policy = ScalePolicy::Now;
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call_timeout = std::chrono::seconds(30);
  /// Empty: an older muster, which agrees to everything. If all nodes are older: Auto.
  std::optional<OnNotice> on_notice;
  /// max_restarts is the budget of failures. Empty: as above.
  std::optional<RestartPolicy> restart_policy;
  bool operator==(const RunSettings&) const = default;
};

/// What a restart of the run may cost.
RestartBudgets restart_budgets(const RunSettings& run);
/// Whether a node with `theirs` may be in a run with `here`.
bool agree(const RunSettings& here, const RunSettings& theirs);
/// The settings that differ, as each side has them: "--nnodes=2:4, --max-restarts=3". Both are
/// empty if none differ.
struct SettingsDifference {
  std::string here;
  std::string there;
};
SettingsDifference difference(const RunSettings& here, const RunSettings& there);

struct RendezvousSettings {
  std::string run_id;
  RunSettings run;
  Duration close_timeout = std::chrono::seconds(30);
  /// In torchrun, the time limit of one keep-alive. muster does not use it.
  std::optional<Duration> heartbeat_timeout;
  Duration keep_alive_interval = std::chrono::seconds(5);
  int keep_alive_max_attempt = 3;
  /// The longest pause after a compare-and-set that another node's write has beaten. Zero: muster's
  /// own pauses.
  Duration cas_backoff{};
  Duration read_timeout = std::chrono::seconds(60);
  std::optional<bool> is_host;  // Empty: the node finds out itself.
  enum class StoreType { Tcp, File };
  StoreType store_type = StoreType::Tcp;
  Duration timeout = std::chrono::seconds(900);  // Of the static backend's store.
  /// Only muster's: a muster node that has been silent for this long is lost.
  Duration lease = std::chrono::seconds(5);
  bool lease_given = false;
  bool spare = false;  // Only muster's: the node takes part only when another node is missing.
  /// Only muster's: how long the workers may go on while the rendezvous is away. Empty: without a
  /// limit if the rendezvous outlives the nodes (musterd), otherwise for read_timeout.
  std::optional<Duration> host_absent;

  /// How long a torchrun node may be silent before it counts as dead, as in torchrun.
  Duration dead_after() const { return keep_alive_interval * keep_alive_max_attempt; }
};

/// A complete round still fails if a member has died or is silent when the nodes exchange their
/// ranks. Then another round is tried. After this many failed rounds in a row the node stops
/// trying.
inline constexpr int kMaxFailedRounds = 3;

/// A time limit, and the key of --rdzv-conf that sets it.
struct NamedLimit {
  Duration time{};
  std::string_view key;
};
/// How long a node that joins tries to reach the rendezvous. join_timeout bounds the whole join, so
/// a join_timeout below read_timeout counts.
NamedLimit reach_limit(const RendezvousSettings& settings);

struct SettingsRequest {
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  RestartPolicy restart_policy = {};
};

/// `reason` is a sentence for the user.
struct SettingsError {
  std::string reason;
};

/// Makes the settings of the launcher's numbers and the map of --rdzv-conf.
boost::system::result<RendezvousSettings, SettingsError> make_settings(
    const SettingsRequest& request, const std::map<std::string, std::string>& conf);

}  // namespace muster
