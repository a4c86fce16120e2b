// What the flags about streams, ranks and signals say.
//
// Pure. `flag` is how to name the flag in an error.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"

namespace muster {

/// -r and -t: "3", or "0:3,1:2" with ranks of any length (torchrun: one digit).
Checked<StreamMap> parse_streams(std::string_view text, const std::string& flag);

/// --local-ranks-filter: "0,2"; empty: no filter.
Checked<std::set<int>> parse_ranks(std::string_view text, const std::string& flag);

/// --log-max-bytes: bytes, or with K, M or G of 1024, as in 100M; at least kMinLogLimitBytes.
Checked<std::int64_t> parse_log_limit(std::string_view text, const std::string& flag);

struct SignalList {
  std::vector<int> numbers;          // Without repetitions, in the order given.
  std::vector<std::string> unknown;  // Names that are no signal's; to be warned about.
};
/// --signals-to-handle: "SIGTERM,SIGUSR1".
Checked<SignalList> parse_signals(std::string_view text, const std::string& flag);

}  // namespace muster
