#include "agent/core/event_record.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "agent/core/error_file.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

// Writes JSON as Python's json.dumps does, blanks included, because people grep these lines. The
// depth of the recursion is bounded: by our own records, and by kMaxErrorFileDepth for an error
// file.
std::string python_json(const Json& value) {
  if (!value.is_structured())
    return value.dump(-1, ' ', true, Json::error_handler_t::replace);  // Strings in ASCII.
  std::string text(value.is_object() ? "{" : "[");
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!std::exchange(first, false)) text += ", ";
    if (value.is_object()) text += python_json(Json(key)) + ": ";
    text += python_json(item);
  }
  return text + (value.is_object() ? "}" : "]");
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json group_json(const EventContext& context) {
  return {{"group_world_size", or_null(context.group_world_size)},
          {"entry_point", context.entry_point}};
}

// The fields that differ between a worker's event and a group's event.
struct Subject {
  std::string_view source = "AGENT";
  Json global_rank = nullptr;
  Json worker_id = nullptr;
  Json raw_error = nullptr;
  Json duration_ms = nullptr;
};

std::string event_line(const EventContext& context, std::string_view state, const Subject& subject,
                       const Json& inner) {
  const Json group_rank = context.group_rank ? Json(context.group_rank->value) : Json(nullptr);
  const Json metadata = {{"run_id", context.run_id},
                         {"global_rank", subject.global_rank},
                         {"group_rank", group_rank},
                         {"worker_id", subject.worker_id},
                         {"role", context.role},
                         {"hostname", context.hostname},
                         {"state", state},
                         {"total_run_time", context.total_run_time_s},
                         {"rdzv_backend", context.rdzv_backend},
                         {"raw_error", subject.raw_error},
                         {"metadata", python_json(inner)},
                         {"agent_restarts", context.agent_restarts},
                         {"duration_ms", subject.duration_ms}};
  return python_json({{"name", "torchelastic.worker.status." + std::string(state)},
                      {"source", subject.source},
                      {"timestamp", context.now_ms},
                      {"metadata", metadata}});
}

// The error file's JSON, or torch's replacement for a worker that left no readable error file.
Json raw_error(const WorkerEvent& event) {
  if (!event.failed) return nullptr;
  Json data;
  if (parse_error_file(event.error_text, data)) return python_json(data);
  data = {{"message", "<NONE>"}};
  if (event.exit_code.value_or(-1) >= 0)
    data["errorTraits"] = {{"category", "system_terminated_error"}, {"retryability", "False"}};
  return python_json(data);
}

}  // namespace

EventContext event_context(const AgentOptions& options, std::string hostname) {
  const std::string& program = options.command.at(0);
  return {.run_id = options.run_id,
          .role = options.role,
          .hostname = std::move(hostname),
          .rdzv_backend = options.rendezvous.backend_name,
          .entry_point =
              options.runs_path ? options.entry_point : program.substr(program.rfind('/') + 1)};
}

std::string agent_event(const EventContext& context, std::string_view state,
                        std::optional<double> duration_ms,
                        const std::optional<std::string>& raw_error) {
  return event_line(context, state,
                    {.raw_error = or_null(raw_error), .duration_ms = or_null(duration_ms)},
                    group_json(context));
}

std::string worker_event(const EventContext& context, const AssignedRanks& ranks,
                         const WorkerEvent& event) {
  const auto number = [](int value) { return Json::array({value}); };
  const auto if_failed = [&event](std::optional<int> value) {
    return Json::array({event.failed ? or_null(value) : Json(nullptr)});
  };
  Json inner = group_json(context);
  // Lists of one element: torch writes them by mistake, and its readers expect them.
  inner["local_rank"] = number(event.local_rank.value);
  inner["role_rank"] = number(ranks.role_rank(event.local_rank));
  inner["role_world_size"] = number(ranks.role_world_size);
  inner["exit_code"] = if_failed(event.exit_code);
  inner["worker_pid"] = if_failed(event.pid);
  return event_line(context, event.state,
                    {.source = "WORKER",
                     .global_rank = ranks.global_rank(event.local_rank).value,
                     .worker_id = std::to_string(event.pid),
                     .raw_error = raw_error(event)},
                    inner);
}

}  // namespace muster
