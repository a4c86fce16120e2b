// Shows a worker's output and its stacks. They come in pieces from the worker's node, through
// musterd.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "musterctl/client.h"

namespace muster::ctl {

/// An answer of musterd about a rank.
struct Piece {
  std::string bytes;
  std::int64_t offset = 0;       // Of the first byte, in the log (NodeAsked::offset).
  std::int64_t next_offset = 0;  // Of the byte after the last one.
  std::int64_t size = 0;         // The offset of the log's end.
  int attempt = 0;               // How often the node has started its workers.
  std::string node = {};         // Its name; empty: musterd is older.
};
/// Pure. The error is a sentence.
boost::system::result<Piece, ClientError> parse_piece(std::string_view json);

struct OutputRequest {
  std::string run;
  int rank = 0;
  bool from_stderr = false;
  bool all = false;  // Show the file from its beginning; otherwise its last lines.
  /// How many lines of its end are shown; nothing: those of its last kShownEndBytes.
  std::optional<int> lines = {};
  bool follow = false;       // Continue as the file grows, and with the worker's next attempts.
  bool on_terminal = false;  // Escape what could control the terminal.
};

/// The part at the end of a file that is shown without OutputRequest::all.
inline constexpr std::int64_t kShownEndBytes = std::int64_t{16} << 10;
/// The largest part at the end of a file in which OutputRequest::lines are looked for.
inline constexpr std::int64_t kMaxEndBytes = std::int64_t{16} << 20;

/// The result: 0, or one of musterctl's exit codes with a reason.
struct OutputEnd {
  int exit_code = 0;
  std::string reason = {};
};

/// Writes a piece of the output. False: it cannot be written, and the caller of the functions below
/// says why.
using PrintOutput = std::function<bool(std::string_view)>;

/// Removes the beginning of a line from the end of a log, which may begin inside a line. A carriage
/// return ends a line, too. If only that line is there, all of it stays. Pure.
std::string_view whole_lines(std::string_view bytes);

/// Where the last `lines` lines of the text begin; nothing: it has fewer. An unfinished line at the
/// end counts. Pure.
std::optional<std::size_t> begin_of_last_lines(std::string_view text, int lines);

/// The ranks whose stacks are asked for, and the number of those beyond kMaxRanksAsked.
struct RanksAsked {
  std::vector<int> ranks;  // In order.
  std::int64_t left_out = 0;
  int first_left_out = 0;
};
inline constexpr std::size_t kMaxRanksAsked = 256;
/// `nodes`: the nodes of a run, as musterd's JSON. Pure.
RanksAsked ranks_to_ask(const std::string& nodes);

/// The text to print when a run that was followed has ended: its node cannot be asked any more for
/// the rank's last lines. `run`: the run, as musterd's JSON, or empty. `shown`: the end of what was
/// shown. The result is empty if it is known that nothing is missing. Pure.
std::string end_text(const std::string& run, const OutputRequest& request,
                     const std::string& shown);

/// Prints piece by piece, and stops with exit code 0 if `print` fails. So do the next two.
OutputEnd show_output(const Service& service, const OutputRequest& request,
                      const PrintOutput& print);
/// Escapes what could control a terminal: the text of a stack comes from the node.
OutputEnd show_stacks(const Service& service, const std::string& run, int rank,
                      const PrintOutput& print);
/// Shows one worker after the other. For a worker that cannot be asked, prints the reason and goes
/// on.
OutputEnd show_all_stacks(const Service& service, const std::string& run, const PrintOutput& print);

}  // namespace muster::ctl
