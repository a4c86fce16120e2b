// What muster and the muster on another host (--hosts) say to each other over ssh's streams.
//
// The host's first line is a greeting with its version. Then it gets one line with its job, and
// after that lines with signals. An empty line says that muster lives; the end of the stream ends
// the job. Arguments, folder and variables are in the job and not in ssh's command: no shell of the
// host reads them.
//
// Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/flag_error.h"

namespace muster {

/// The only argument of muster on a host that --hosts has named.
inline constexpr std::string_view kNodeOption = "--node-of-hosts";

/// A line by which the other side knows muster, whatever a profile of the shell prints before.
std::string greeting(std::string_view version);
/// The version in such a line; nothing: it is another line.
std::optional<std::string> version_of_greeting(std::string_view line);

struct NodeJob {
  std::string folder;
  std::map<std::string, std::string> environment;  // Added to the host's own.
  std::vector<std::string> arguments;              // Of muster.
  /// If nothing has come for so long, the machine of the other side has vanished: it closes no
  /// connection then. The other side writes every 20 s.
  int max_silence_s = 300;

  bool operator==(const NodeJob&) const = default;
};

inline constexpr std::size_t kMaxNodeJobBytes = std::size_t{8} << 20;
/// Each line with its line feed.
std::string encode_node_job(const NodeJob& job);
std::string encode_node_signal(int number);

/// `line`: without its line feed.
Checked<NodeJob> decode_node_job(std::string_view line);
/// Nothing: the line says only that muster lives, or is unknown.
std::optional<int> decode_node_signal(std::string_view line);

}  // namespace muster
