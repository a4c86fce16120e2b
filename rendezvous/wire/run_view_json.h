// Views of runs as JSON: what the HTTP interface answers, and what musterctl reads.
//
// The fields: docs/operating.md. New ones may come; none changes its meaning within /api/v1.
#pragma once

#include <string>

#include "rendezvous/core/run_view.h"

namespace muster {

/// Seconds with milliseconds since 1970 as "2026-11-22T21:39:01.123Z".
std::string time_text(WallTime at);

/// Bytes that are not UTF-8 become U+FFFD. None of these throws but for lack of memory.
std::string runs_json(const RunsView& view);
/// Without its nodes; with the events.
std::string run_json(const RunView& view);
std::string nodes_json(const RunView& view);
/// A piece of a log, or of a file of stacks: its bytes in base64.
std::string answer_json(const NodeAnswered& answer);
/// What an operator has asked is done; `text` says what follows from it, and may be empty.
std::string done_json(const std::string& text);
/// One line without a line feed: the data of one server-sent event.
std::string event_json(const RunEvent& event, const RunView& view);

}  // namespace muster
