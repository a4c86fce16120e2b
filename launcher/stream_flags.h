// Parses the flags about streams, ranks and signals.
//
// Pure. `flag` is the flag's name for error messages.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/agent_options.h"
#include "launcher/flag_error.h"

namespace muster {

/// For -r and -t: "3", or "0:3,1:2". A rank may have several digits (torchrun: one digit).
Checked<StreamMap> parse_streams(std::string_view text, const std::string& flag);

/// For --local-ranks-filter: "0,2"; empty: no filter.
Checked<std::set<int>> parse_ranks(std::string_view text, const std::string& flag);

/// For --log-max-bytes: a number of bytes, or of units K, M or G (powers of 1024), as in 100M. At
/// least kMinLogLimitBytes.
Checked<std::int64_t> parse_log_limit(std::string_view text, const std::string& flag);

struct SignalList {
  std::vector<int> numbers;          // Without duplicates, in the given order.
  std::vector<std::string> unknown;  // Names of no signal: the caller warns about them.
};
/// For --signals-to-handle: "SIGTERM,SIGUSR1".
Checked<SignalList> parse_signals(std::string_view text, const std::string& flag);

}  // namespace muster
