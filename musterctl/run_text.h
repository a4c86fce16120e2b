// Formats musterd's answers about runs for a terminal. Pure: JSON text in, text out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

#include "musterctl/http_text.h"

namespace muster::ctl {

struct TextError {
  std::string reason;
};
/// An error means that the JSON is not an answer of musterd.
using Text = boost::system::result<std::string, TextError>;

/// Formats /api/v1/runs.
Text runs_text(std::string_view json);
/// The number of runs in /api/v1/runs and, if there is only one, its id without escapes.
struct OnlyRun {
  std::size_t total = 0;
  std::string id = {};  // Empty: there are none, or several.
};
boost::system::result<OnlyRun, TextError> only_run(std::string_view json);
/// Formats /api/v1/runs/ID.
Text status_text(std::string_view json);
/// The same for one screen that is drawn again and again: what changes comes before a failure's
/// report, and of the history only the last events, the newest first.
Text watched_status_text(std::string_view json);
/// Formats /api/v1/runs/ID: the first failure, what followed, and where to look next.
Text why_text(std::string_view json);
/// Formats /api/v1/runs/ID/nodes.
Text nodes_text(std::string_view json);
/// The ids of /api/v1/runs, or the names of /api/v1/runs/ID/nodes, one in each line, for a shell to
/// complete. Those with characters that a shell would have to quote are left out.
Text run_words(std::string_view json);
Text node_words(std::string_view json);
/// Formats the answer of a POST that has changed something: `begin`, then musterd's text about the
/// consequences.
Text done_text(const std::string& begin, std::string_view json);
/// The path of a link to musterd's page, from the answer of /api/v1/login.
Text login_path(std::string_view json);
/// The message of musterd's error JSON; nothing if the text is not that.
std::optional<std::string> musterd_error(std::string_view json);
/// Why a request was refused: the message of musterd's error or, if another program answers, the
/// first 200 bytes of the answer. If the token was refused, says so.
std::string error_text(const HttpAnswer& answer);

using Row = std::vector<std::string>;
/// Pads each column to the width of its longest cell, except the last column. Each row ends with a
/// line feed.
std::string table_text(const std::vector<Row>& rows);
/// "2d 3h", "4 min 5 s", "0.3 s"
std::string duration_text(double seconds);
/// Makes a text from outside printable, so that nothing in it moves the cursor.
std::string safe(std::string_view text);

}  // namespace muster::ctl
