#include "agent/core/logs_specs.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/whole_number.h"

namespace muster {
namespace {

using nlohmann::json;
template <class T>
using Read = boost::system::result<T, LogsSpecsError>;

// JSON has no form for bytes that are not UTF-8, so they are replaced. Such a variable comes back
// only if the plug-in changes it.
std::string line_of(const json& message) {
  return message.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

int bits(StreamSet set) {
  return (set.out ? 1 : 0) | (set.err ? 2 : 0);
}

json streams_json(const StreamMap& map) {
  if (!map.per_rank) return bits(map.all);
  json by_rank = json::object();
  for (const auto& [rank, set] : map.by_local_rank)
    by_rank[std::to_string(rank)] = bits(set);
  return by_rank;
}

Read<json> read_object(std::string_view line) {
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object()) return LogsSpecsError{"its program answers with something else"};
  if (const auto error = answer.find("error"); error != answer.end()) {
    std::string text = error->is_string() ? error->get<std::string>() : error->dump();
    if (text.empty()) text = "its program reports an error without a text";
    return LogsSpecsError{std::move(text)};
  }
  return {boost::system::in_place_value, std::move(answer)};
}

// A text without NUL bytes, so that the system accepts it as a path.
std::optional<std::string> read_text(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  auto text = found->get<std::string>();
  if (text.find('\0') != std::string::npos) return std::nullopt;
  return text;
}

Read<std::map<int, std::string>> read_paths(const json& answer, const char* name) {
  const auto found = answer.find(name);
  if (found == answer.end() || !found->is_object())
    return LogsSpecsError{std::string(name) + " is not a mapping from local ranks to paths"};
  std::map<int, std::string> paths;
  for (const auto& [key, value] : found->items()) {
    const auto rank = whole_number<int>(key);
    const auto path = read_text(*found, key.c_str());
    if (!rank || !path)
      return LogsSpecsError{std::string(name) + "[" + key + "] is not a local rank with a path"};
    paths.emplace(*rank, *path);
  }
  return paths;
}

Read<EnvironmentChanges> read_changes(const json& worker) {
  LogsSpecsError wrong{"it asks for changes of the environment that are not possible"};
  const auto is_name = [](const std::string& name) {
    return !name.empty() && name.find('=') == std::string::npos &&
           name.find('\0') == std::string::npos;
  };
  EnvironmentChanges changes;
  if (!worker.is_object() || !worker.contains("set") || !worker["set"].is_object() ||
      !worker.contains("unset") || !worker["unset"].is_array())
    return wrong;
  for (const auto& [name, value] : worker["set"].items()) {
    const auto text = read_text(worker["set"], name.c_str());
    if (!is_name(name) || !text) return wrong;
    changes.set.emplace_back(name, *text);
  }
  for (const json& name : worker["unset"]) {
    if (!name.is_string()) return wrong;
    changes.unset.push_back(name.get<std::string>());
  }
  return changes;
}

// torchrun requires this of stdouts and stderrs, and of no other member.
std::optional<LogsSpecsError> check_ranks(const std::map<int, std::string>& paths, const char* name,
                                          int workers) {
  bool is_full = paths.size() == static_cast<std::size_t>(workers);
  std::string actual;
  int expected = 0;
  for (const auto& [rank, path] : paths) {
    is_full = is_full && rank == expected++;
    actual += (actual.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (is_full) return std::nullopt;
  return LogsSpecsError{std::string(name) + " is for the local ranks {" + actual +
                        "}, but it must have one path for each of the " + std::to_string(workers) +
                        " workers, numbered from 0"};
}

}  // namespace

std::string logs_specs_begin(const LogsSpecsOptions& specs, const LogOptions& log) {
  json message{{"name", specs.name},
               {"log_dir", nullptr},
               {"redirects", streams_json(log.redirects)},
               {"tee", streams_json(log.tee)},
               {"local_ranks_filter", nullptr}};
  if (!specs.log_dir.empty()) message["log_dir"] = specs.log_dir;
  if (!log.local_ranks_filter.empty()) message["local_ranks_filter"] = log.local_ranks_filter;
  return line_of(message);
}

Read<void> read_logs_specs_ready(std::string_view line) {
  const auto answer = read_object(line);
  if (!answer) return answer.error();
  return {};
}

std::string logs_specs_request(const std::vector<Variables>& environments) {
  json envs = json::array();
  for (const Variables& variables : environments) {
    json& env = envs.emplace_back(json::object());
    for (const auto& [name, value] : variables)
      env[name] = value;
  }
  return line_of({{"envs", std::move(envs)}});
}

Read<LogsDest> read_logs_dest(std::string_view line, const AgentOptions& options) {
  const auto answer = read_object(line);
  if (!answer) return answer.error();
  LogsDest dest;
  for (const auto& [name, paths] : {std::pair("stdouts", &dest.stdouts),
                                    {"stderrs", &dest.stderrs},
                                    {"tee_stdouts", &dest.tee_stdouts},
                                    {"tee_stderrs", &dest.tee_stderrs},
                                    {"error_files", &dest.error_files}}) {
    auto read = read_paths(*answer, name);
    if (!read) return read.error();
    *paths = std::move(*read);
  }
  for (const auto& [name, paths] :
       {std::pair("stdouts", &dest.stdouts), {"stderrs", &dest.stderrs}})
    if (auto wrong = check_ranks(*paths, name, options.local_world_size)) return *std::move(wrong);

  for (const auto& [name, path, is_needed] :
       {std::tuple("filtered_stdout", &dest.filtered_stdout,
                   !options.log.duplicate_stdout_filters.empty()),
        {"filtered_stderr", &dest.filtered_stderr,
         !options.log.duplicate_stderr_filters.empty()}}) {
    auto read = read_text(*answer, name);
    if (!read) return LogsSpecsError{std::string(name) + " is not a path"};
    *path = std::move(*read);
    if (is_needed && path->empty())
      return LogsSpecsError{std::string(name) +
                            " is empty, but lines were asked for that go there "
                            "(--duplicate-stdout-filters, --duplicate-stderr-filters)"};
  }

  const auto workers = answer->find("environment");
  if (workers == answer->end() || !workers->is_array() ||
      workers->size() != static_cast<std::size_t>(options.local_world_size))
    return LogsSpecsError{"its program answers without the environments"};
  for (const json& worker : *workers) {
    auto changes = read_changes(worker);
    if (!changes) return changes.error();
    dest.environment.push_back(std::move(*changes));
  }
  return dest;
}

}  // namespace muster
