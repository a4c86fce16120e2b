// Decides when muster passes on a signal that does not end the job (--signals-to-forward).
//
// Pure. A scheduler sends such a signal to the process that it started, or to every process of the
// job, as Slurm does. In the second case the workers have it already, and must not get it twice.
// The shim has a session of its own: it gets the signal itself only if the sender means every
// process, or if a worker sends it to its parent.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"

namespace muster {

class ForwardedSignals {
 public:
  /// The time from the first process of muster that gets the signal to the last one.
  static constexpr Duration kWindow = std::chrono::milliseconds(250);

  enum class At { Front, Shim };
  /// A process of muster has got the signal.
  void arrived(int number, At at, Instant now);

  struct Due {
    int number = 0;
    bool workers_have_it = false;  // It came to every process of the job.
  };
  /// The signals whose window is over. Each is returned once, however often it came meanwhile.
  std::vector<Due> due(Instant now);
  /// When due() must be called; nothing if no signal waits.
  std::optional<Instant> next_due() const;

 private:
  struct Waiting {
    Instant due{};
    bool at_front = false;
    bool at_shim = false;
  };
  std::map<int, Waiting> waiting_;
};

}  // namespace muster
