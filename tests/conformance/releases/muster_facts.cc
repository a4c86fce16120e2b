// Prints what muster does, as JSON, for compare.py, which compares it with what a release of torch
// does. Nothing here is a list of its own: each fact is asked of the code that a job runs.
#include <cctype>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/core/log_plan.h"
#include "agent/core/worker_env.h"
#include "launcher/option_table.h"
#include "launcher/rendezvous_flags.h"
#include "rendezvous/store/store_request.h"
#include "rendezvous/store/store_traffic.h"
#include "worker_sdk/src/nccl_choice.h"

namespace {

using nlohmann::json;

json options() {
  auto list = json::array();
  for (const muster::Option& option : muster::all_options()) {
    if (option.origin == muster::OptionOrigin::Muster) continue;
    json names = json::array();
    for (const std::string_view name : option.names)
      if (!name.empty()) names.push_back(name);
    list.push_back({{"names", names},
                    {"launch", option.origin == muster::OptionOrigin::LaunchModule},
                    {"takes_value", option.takes_value()},
                    {"variable", option.environment},
                    {"default", option.fallback ? json(*option.fallback) : json()},
                    {"choices", json(option.choices)}});
  }
  return list;
}

/// Whether a backend of torchrun's knows the key of --rdzv-conf. A wrong value is a known key.
bool knows_key(const std::string& key, std::string_view backend) {
  const auto conf = muster::parse_rendezvous_conf(key + "=1", backend, "--rdzv-conf");
  return conf || conf.error().message.find("there is no setting") == std::string::npos;
}

json names_of(const std::vector<std::string>& environment) {
  json names = json::array();
  for (const std::string& variable : environment)
    names.push_back(variable.substr(0, variable.find('=')));
  return names;
}

json worker_variables() {
  muster::AgentOptions options;
  options.local_world_size = 2;
  options.set_omp_num_threads = true;
  options.virtual_local_rank = true;
  // Each variable that a worker gets only if the agent has it, or if it names devices.
  const std::vector<std::string> inherited = {"CUDA_VISIBLE_DEVICES=3,4",
                                              "HIP_VISIBLE_DEVICES=5,6"};
  muster::RoundFacts round;
  round.ranks.world_size = 2;
  const muster::WorkerIdentity worker{.local_rank = muster::LocalRank{0},
                                      .error_file = "error.json",
                                      .job_token = "",
                                      .channel = ""};
  return names_of(muster::worker_env(inherited, options, round, worker));
}

/// The macros of the prefix template, of those that are asked for.
json replaced_macros(const std::vector<std::string>& asked) {
  json found = json::array();
  for (const std::string& macro : asked) {
    muster::AgentOptions options;
    options.log.prefix_template = "${" + macro + "}";
    const auto plan =
        muster::plan_logs(options, {.attempt_dir = "/a", .base_global_rank = {}, .host = "h"});
    std::string prefix;
    plan.workers.at(0).prefix.append_to(prefix, "12:00:00.000");
    if (prefix != options.log.prefix_template) found.push_back(macro);
  }
  return found;
}

/// In the order of their numbers, and spelled as torch spells them.
json store_queries() {
  json names = json::array();
  for (std::size_t number = 0; number < muster::kQueryCount; ++number) {
    std::string name(muster::to_string(static_cast<muster::Query>(number)));
    for (char& letter : name)
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    names.push_back(name);
  }
  return names;
}

json nccl(const std::string& release) {
  const auto dot = release.find('.');
  const muster::TorchRelease torch{std::stoi(release.substr(0, dot)),
                                   std::stoi(release.substr(dot + 1))};
  json made = json::object();
  for (const char* value : {"", "0", "1", "2"}) {
    const auto given = *value ? std::optional<std::string_view>(value) : std::nullopt;
    const bool second = muster::choose_nccl(torch, given) == muster::NcclClass::ProcessGroupNCCL2;
    made[value] = second ? "ProcessGroupNCCL2" : "ProcessGroupNCCL";
  }
  return {{"classes", made}, {"binds_a_device", muster::nccl2_binds_a_device(torch)}};
}

}  // namespace

/// Input: {"rdzv_keys": {"key": ["backend", …]}, "prefix_macros": […], "releases": […]}, which is
/// what the releases have.
int main() {
  const json asked = json::parse(std::cin);
  json keys = json::array();
  for (const auto& [key, backends] : asked.at("rdzv_keys").items())
    for (const std::string backend : backends)
      if (knows_key(key, backend)) keys.push_back(key + " " + backend);
  json made = json::object();
  for (const std::string release : asked.at("releases"))
    made[release] = nccl(release);
  std::cout << json{{"options", options()},
                    {"rdzv_keys", keys},
                    {"worker_variables", worker_variables()},
                    {"prefix_macros", replaced_macros(asked.at("prefix_macros"))},
                    {"store_queries", store_queries()},
                    {"nccl", made},
                    {"variable_of_nccl", muster::kUseNccl2}}
                   .dump(1)
            << '\n';
}
