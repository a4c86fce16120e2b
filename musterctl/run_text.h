// What musterd says of runs, as text for a terminal. Pure: JSON text in, text out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <boost/system/result.hpp>

namespace muster::ctl {

struct TextError {
  std::string reason;
};
/// An error: the JSON is not what musterd says.
using Text = boost::system::result<std::string, TextError>;

/// Of /api/v1/runs.
Text runs_text(std::string_view json);
/// How many runs /api/v1/runs tells of, and the id of the only one, as it is.
struct OnlyRun {
  std::size_t total = 0;
  std::string id = {};  // Empty: there are none, or several.
};
boost::system::result<OnlyRun, TextError> only_run(std::string_view json);
/// Of /api/v1/runs/ID.
Text status_text(std::string_view json);
/// The first failure, what followed, and what to look at next.
Text why_text(std::string_view json);
/// Of /api/v1/runs/ID/nodes.
Text nodes_text(std::string_view json);
/// Of a POST that has changed something: `begin`, and what musterd says follows from it.
Text done_text(const std::string& begin, std::string_view json);
/// The path of a link to the page, of what /api/v1/login answers.
Text login_path(std::string_view json);
/// The message of an error's JSON; what is there instead if it is none.
std::string error_text(std::string_view json);

using Row = std::vector<std::string>;
/// Columns as wide as they must be; the last one as it is. Each row has a line feed.
std::string table_text(const std::vector<Row>& rows);
/// "2d 3h", "4 min 5 s", "0.3 s"
std::string duration_text(double seconds);
/// A text from outside: nothing in it moves the cursor.
std::string safe(std::string_view text);

}  // namespace muster::ctl
