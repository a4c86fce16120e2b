// Views of runs as JSON: the answers of the HTTP interface, which musterctl reads.
//
// openapi.json describes the fields. New fields may be added; within /api/v1 no field changes
// its meaning.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/rounds/run_view.h"

namespace muster {

/// Bytes that are not UTF-8 become U+FFFD. These functions throw only if there is no memory.
std::string runs_json(const RunsView& view);
/// The run without its nodes, but with its events.
std::string run_json(const RunView& view);
std::string nodes_json(const RunView& view);
/// How fast the workers have taken their steps.
std::string steps_json(const RunView& view);
/// Which program answers, and where it runs.
struct ServerFacts {
  std::string host;
  std::string version;
  std::uint16_t port = 0;  // Where nodes meet. 0: it is not known yet.
};
std::string server_json(const ServerFacts& server);
/// {"id": "job"}
std::string id_json(const std::string& run);
/// A piece of a log or of a file of stacks, with its bytes in base64.
std::string answer_json(const NodeAnswered& answer);
/// The answer after an operator's request was done. `text` has its consequences and may be empty.
std::string done_json(const std::string& text);
/// One line without a line feed: the data of one server-sent event.
std::string event_json(const RunEvent& event, const RunView& view);

}  // namespace muster
