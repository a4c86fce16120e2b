#include "agent/io/preflight.h"

#include <poll.h>

#include <chrono>

#include <nlohmann/json.hpp>

#include "agent/posix/helper_process.h"

namespace muster {
namespace {

// The doctor looks up this host's name, which takes long with a broken name service.
constexpr std::chrono::milliseconds kTimeout(30'000);
constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 20;

std::string field_of(const nlohmann::json& check, const char* name) {
  const auto field = check.find(name);
  return field != check.end() && field->is_string() ? field->get<std::string>() : std::string();
}

}  // namespace

Preflight read_preflight(std::string_view json) {
  Preflight result;
  const auto answer = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const bool is_answer =
      answer.is_object() && answer.contains("checks") && answer["checks"].is_array();
  if (!is_answer) {
    result.failure = "its answer is not the doctor's: is it of another version?";
    return result;
  }
  for (const auto& check : answer["checks"]) {
    if (!check.is_object()) continue;
    const std::string verdict = field_of(check, "verdict");
    const std::string remedy = field_of(check, "remedy");
    const std::string line = field_of(check, "name") + ": " + field_of(check, "found") +
                             (remedy.empty() ? std::string() : " (what to do: " + remedy + ")");
    if (verdict == "failure") result.failure += (result.failure.empty() ? "" : "; ") + line;
    if (verdict == "warning") result.warnings.push_back(line);
  }
  return result;
}

Preflight run_preflight(const std::string& program, const std::vector<std::string>& environment) {
  auto doctor = HelperProcess::start({program, "doctor", "--quick", "--json"}, environment);
  const auto no_start = [&program](const boost::system::error_code& error) {
    return Preflight{"cannot start " + program + ": " + error.message() +
                         " (it is installed with muster, beside it)",
                     {}};
  };
  if (!doctor) return no_start(doctor.error());
  pollfd ended{doctor->pidfd(), POLLIN, 0};
  const bool in_time = ::poll(&ended, 1, static_cast<int>(kTimeout.count())) == 1;
  if (const auto error = doctor->start_error()) return no_start(error);
  doctor->finish();  // Not checked: the doctor exits with 1 if a check fails.
  if (!in_time) return {program + " doctor --quick has not ended within 30 s", {}};
  return read_preflight(doctor->output(kMaxOutputBytes));
}

}  // namespace muster
