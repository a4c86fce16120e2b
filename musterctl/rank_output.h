// A worker's output and its stacks, piece by piece from its node through musterd.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <boost/system/result.hpp>

#include "musterctl/client.h"

namespace muster::ctl {

/// What musterd answers about a rank.
struct Piece {
  std::string bytes;
  std::int64_t offset = 0;       // Of the first byte, in the file.
  std::int64_t next_offset = 0;  // Of the byte after the last one.
  std::int64_t size = 0;         // Of the whole file.
  int attempt = 0;               // How often the node has started its workers.
};
/// Pure; the error is a sentence.
boost::system::result<Piece, ClientError> parse_piece(std::string_view json);

struct OutputRequest {
  std::string run;
  int rank = 0;
  bool from_stderr = false;
  bool all = false;     // From the beginning of the file; else its last lines.
  bool follow = false;  // Goes on as the file grows, and with the worker's next attempts.
};

/// So much of the end of a file is shown where not all of it is asked for.
inline constexpr std::int64_t kShownEndBytes = std::int64_t{16} << 10;

/// How asking went on: 0, or one of musterctl's exit codes with a reason.
struct OutputEnd {
  int exit_code = 0;
  std::string reason = {};
};

/// Calls `print` with each piece; `print` returns false when nobody reads it any more.
OutputEnd show_output(const Service& service, const OutputRequest& request,
                      const std::function<bool(std::string_view)>& print);
OutputEnd show_stacks(const Service& service, const std::string& run, int rank,
                      const std::function<bool(std::string_view)>& print);
/// One worker after the other; nodes that cannot be asked are named, and the others go on.
OutputEnd show_all_stacks(const Service& service, const std::string& run,
                          const std::function<bool(std::string_view)>& print);

}  // namespace muster::ctl
