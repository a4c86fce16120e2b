// muster on a host that --hosts has named: it gets its job from ssh, starts muster for it, passes
// signals on, and ends the job when ssh's stream ends.
#pragma once

namespace muster {

/// Returns muster's exit status, or 128 + N if it died of signal N.
int run_node_of_hosts();

}  // namespace muster
