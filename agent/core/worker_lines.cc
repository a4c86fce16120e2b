#include "agent/core/worker_lines.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json_integer.h"

namespace muster {

namespace {

using LineJson = nlohmann::json;

/// The value of a field, if it is an integer that fits into an int64.
std::optional<std::int64_t> whole_number_of(const LineJson& message, const char* name) {
  const auto field = message.find(name);
  return field == message.end() ? std::nullopt : integer_of<std::int64_t>(*field);
}

}  // namespace

std::optional<WorkerMessage> WorkerLines::next() {
  while (error_.empty()) {
    const std::size_t end = buffer_.find('\n');
    if (std::min(end, buffer_.size()) > kMaxLineBytes) return fail("a line is too long");
    if (end == std::string::npos) return std::nullopt;
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    if (auto message = handle_line(line)) return message;
  }
  return std::nullopt;
}

std::optional<WorkerMessage> WorkerLines::handle_line(std::string_view line) {
  const LineJson message = LineJson::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto type = message.is_object() ? message.find("type") : message.end();
  if (!message.is_object() || type == message.end() || !type->is_string())
    return fail("a line is no JSON object with a type");
  if (*type == "hello") {
    const auto rank = whole_number_of(message, "local_rank");
    if (rank_ || !rank || *rank < 0 || *rank >= local_world_size_)
      return fail("a hello without a local rank of this node, or a second one");
    rank_ = LocalRank{static_cast<int>(*rank)};
    return std::nullopt;
  }
  if (*type != "progress" && *type != "progress_end" && *type != "ends_itself" && *type != "saved")
    return std::nullopt;  // From a later version of the protocol.
  if (!rank_) return fail("a message before hello");
  if (*type == "progress")
    return WorkerProgress{.rank = *rank_, .step = whole_number_of(message, "step")};
  if (*type == "progress_end") return WorkerProgress{.rank = *rank_, .ends = true};
  if (*type == "saved") return WorkerSaved{.rank = *rank_, .id = whole_number_of(message, "id")};
  ends_itself_ = true;
  return std::nullopt;
}

std::optional<WorkerMessage> WorkerLines::fail(std::string_view error) {
  error_ = error;
  buffer_.clear();
  return std::nullopt;
}

}  // namespace muster
