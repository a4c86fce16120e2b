// The life of the zygote (--warm), and from where each worker starts. The table is in
// docs/warm.md.
//
// Pure. Whatever goes wrong with the zygote, each start that was asked for gets exactly one of
// ForkWorker, followed by a StartCold if that fails, or StartCold at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/time.h"

namespace muster {

/// Why a worker starts cold, for people; always with the fault of the zygote in it.
using ColdReason = std::string;

struct LaunchZygote {};
struct KillZygote {};
struct ForkWorker {
  int worker = 0;
};
struct StartCold {
  int worker = 0;
  ColdReason reason;  // Empty: the start is not to be explained.
};
/// The zygote was lost while no start waited: no StartCold says so.
struct ReportLostZygote {
  ColdReason reason;
  bool is_replaced = false;  // A new zygote is made.
};
using ZygoteAction =
    std::variant<LaunchZygote, KillZygote, ForkWorker, StartCold, ReportLostZygote>;
using ZygoteActions = std::vector<ZygoteAction>;

/// A worker is to be started.
struct WarmStartAsked {
  int worker = 0;
};
/// The zygote has done its imports, and waits.
struct ImportsDone {};
/// The zygote says that it can fork no worker.
struct ZygoteRefused {
  ColdReason reason;
  bool is_stale = false;  // A new zygote could.
};
/// The zygote has ended, or could not be started.
struct ZygoteEnded {
  ColdReason how;  // "was killed by signal 9"
};
struct ForkDone {
  int worker = 0;
};
/// The fork has ended before it was ready to run the script.
struct ForkFailed {
  int worker = 0;
};
/// The zygote's own memory: measured when its imports are done, and after forks.
struct ZygoteMeasured {
  std::uint64_t bytes = 0;
};
/// The job stops, or kills its workers: no start may wait any longer.
struct WarmStartsAborted {};
/// A deadline may have passed.
struct ZygoteTimePassed {};
using ZygoteEvent = std::variant<WarmStartAsked, ImportsDone, ZygoteRefused, ZygoteEnded, ForkDone,
                                 ForkFailed, ZygoteMeasured, WarmStartsAborted, ZygoteTimePassed>;

class ZygoteLife {
 public:
  /// For the imports of the first zygote: the workers wait for it. The same imports take as long in
  /// a cold start, on a slow file system for minutes.
  static constexpr Duration kImportLimit = std::chrono::seconds(300);
  /// From the request to a worker that is ready to run the script.
  static constexpr Duration kForkLimit = std::chrono::seconds(5);
  /// So many zygotes in a row may end or be stale without one worker of theirs.
  static constexpr int kZygotesWithoutWorker = 3;

  /// A zygote whose memory has grown beyond this is made anew. Forks alone change little of it: the
  /// growth is a leak in what imports do at each fork.
  static constexpr std::uint64_t max_bytes(std::uint64_t bytes_after_imports) {
    return 2 * bytes_after_imports + (std::uint64_t{64} << 20);
  }

  enum class State { Absent, Importing, Ready, Refused };

  ZygoteActions step(const ZygoteEvent& event, Instant now);
  /// When step(ZygoteTimePassed) is needed. Empty: only an event can change anything.
  std::optional<Instant> next_deadline() const { return deadline_; }
  State state() const { return state_; }
  /// Whether a start has been asked for and has not been answered.
  bool has_waiting() const { return !waiting_.empty(); }

 private:
  ZygoteActions on(const WarmStartAsked& event, Instant now);
  ZygoteActions on(const ImportsDone& event, Instant now);
  ZygoteActions on(const ZygoteRefused& event, Instant now);
  ZygoteActions on(const ZygoteEnded& event, Instant now);
  ZygoteActions on(const ForkDone& event, Instant now);
  ZygoteActions on(const ForkFailed& event, Instant now);
  ZygoteActions on(const ZygoteMeasured& event, Instant now);
  ZygoteActions on(const WarmStartsAborted& event, Instant now);
  ZygoteActions on(const ZygoteTimePassed& event, Instant now);

  enum class Next { NewZygote, None };
  ZygoteActions give_up(const ColdReason& reason, Next next, Instant now);
  void start_waiting_cold(const ColdReason& reason, ZygoteActions& actions);
  void launch(ZygoteActions& actions, Instant now);

  State state_ = State::Absent;
  std::set<int> waiting_;  // Importing: for the zygote. Ready: their forks have been asked for.
  std::optional<Instant> deadline_;
  std::optional<std::uint64_t> bytes_after_imports_;
  ColdReason refusal_;      // Why the state is Refused.
  int without_worker_ = 0;  // Zygotes in a row that have made no worker.
  bool is_first_ = true;    // No zygote was ready or has ended before.
};

}  // namespace muster
