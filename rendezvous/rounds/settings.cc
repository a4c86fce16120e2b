#include "rendezvous/rounds/settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/python_text.h"

namespace muster {
namespace {

using Conf = std::map<std::string, std::string>;
template <typename T>
using OrReason = boost::system::result<T, std::string>;

// 146 years. A longer timeout is cut to this.
constexpr std::int64_t kMaxSeconds = std::numeric_limits<std::int64_t>::max() / 2'000'000'000;

std::optional<bool> python_bool(std::string_view raw) {
  const std::string text = lower(raw);
  for (const char* yes : {"1", "true", "t", "yes", "y"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "f", "no", "n"})
    if (text == no) return false;
  return std::nullopt;
}

std::string error(std::string_view key, std::string_view value, std::string_view wanted) {
  return "--rdzv-conf " + std::string(key) + "=" + std::string(value) + ": must be " +
         std::string(wanted);
}

OrReason<Duration> seconds(std::string_view key, const std::string& value) {
  const auto number = parse_python_int(value);
  if (!number || *number <= 0) return error(key, value, "a whole number of seconds above 0");
  return Duration(std::chrono::seconds(std::min(*number, kMaxSeconds)));
}

// One key of --rdzv-conf. `set` sets the key's field, or returns an error text.
struct Key {
  std::string_view name;
  std::string (*set)(RendezvousSettings&, std::string_view, const std::string&);
};

template <Duration RendezvousSettings::*Field>
std::string set_seconds(RendezvousSettings& settings, std::string_view key,
                        const std::string& value) {
  const auto parsed = seconds(key, value);
  if (!parsed) return parsed.error();
  settings.*Field = *parsed;
  return {};
}
template <Duration RunSettings::*Field>
std::string set_run_seconds(RendezvousSettings& settings, std::string_view key,
                            const std::string& value) {
  const auto parsed = seconds(key, value);
  if (!parsed) return parsed.error();
  settings.run.*Field = *parsed;
  return {};
}
std::string set_heartbeat_timeout(RendezvousSettings& settings, std::string_view key,
                                  const std::string& value) {
  const auto parsed = seconds(key, value);
  if (!parsed) return parsed.error();
  settings.heartbeat_timeout = *parsed;
  return {};
}
std::string set_host_absent(RendezvousSettings& settings, std::string_view key,
                            const std::string& value) {
  const auto parsed = seconds(key, value);
  if (!parsed) return parsed.error();
  settings.host_absent = *parsed;
  return {};
}
std::string set_lease(RendezvousSettings& settings, std::string_view key,
                      const std::string& value) {
  settings.lease_given = true;
  return set_seconds<&RendezvousSettings::lease>(settings, key, value);
}
std::string set_attempts(RendezvousSettings& settings, std::string_view key,
                         const std::string& value) {
  const auto number = parse_python_int(value);
  if (!number || *number < 1 || *number > 1'000'000)
    return error(key, value, "a whole number above 0");
  settings.keep_alive_max_attempt = static_cast<int>(*number);
  return {};
}
std::string set_cas_backoff(RendezvousSettings& settings, std::string_view key,
                            const std::string& value) {
  const auto number = parse_python_float(value);
  if (!number || !std::isfinite(*number) || *number < 0)
    return error(key, value, "a finite number of seconds, 0 or more");
  settings.cas_backoff = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(*number, static_cast<double>(kMaxSeconds))));
  return {};
}
std::string set_is_host(RendezvousSettings& settings, std::string_view key,
                        const std::string& value) {
  settings.is_host = python_bool(value);
  return settings.is_host ? std::string() : error(key, value, "true or false");
}
std::string set_spare(RendezvousSettings& settings, std::string_view key,
                      const std::string& value) {
  const auto spare = python_bool(value);
  if (!spare) return error(key, value, "true or false");
  settings.spare = *spare;
  return {};
}
std::string set_store_type(RendezvousSettings& settings, std::string_view key,
                           const std::string& value) {
  const std::string type = lower(strip(value));
  if (type != "tcp" && type != "file") return error(key, value, "tcp or file");
  settings.store_type =
      type == "tcp" ? RendezvousSettings::StoreType::Tcp : RendezvousSettings::StoreType::File;
  return {};
}
std::string set_scale_policy(RendezvousSettings& settings, std::string_view key,
                             const std::string& value) {
  for (const auto policy : {ScalePolicy::Now, ScalePolicy::AtRestart, ScalePolicy::Never})
    if (value == to_string(policy)) {
      settings.run.scale_policy = policy;
      return {};
    }
  return error(key, value, "now, at-restart or never");
}
std::string set_on_notice(RendezvousSettings& settings, std::string_view key,
                          const std::string& value) {
  for (const auto policy : {OnNotice::Auto, OnNotice::Stop, OnNotice::Shrink})
    if (value == to_string(policy)) {
      settings.run.on_notice = policy;
      return {};
    }
  return error(key, value, "auto, stop or shrink");
}
/// For `rank` of the static backend: the launcher's --node-rank counts (torchrun overwrites `rank`,
/// too).
std::string ignore(RendezvousSettings&, std::string_view, const std::string&) {
  return {};
}

constexpr std::array kKeys{
    Key{"cas_backoff_max_seconds", set_cas_backoff},
    Key{"close_timeout", set_seconds<&RendezvousSettings::close_timeout>},
    Key{"heartbeat_timeout", set_heartbeat_timeout},
    Key{"host_absent", set_host_absent},
    Key{"is_host", set_is_host},
    Key{"join_timeout", set_run_seconds<&RunSettings::join_timeout>},
    Key{"keep_alive_interval", set_seconds<&RendezvousSettings::keep_alive_interval>},
    Key{"keep_alive_max_attempt", set_attempts},
    Key{"last_call_timeout", set_run_seconds<&RunSettings::last_call_timeout>},
    Key{"lease", set_lease},
    Key{"on_notice", set_on_notice},
    Key{"rank", ignore},
    Key{"read_timeout", set_seconds<&RendezvousSettings::read_timeout>},
    Key{"scale_policy", set_scale_policy},
    Key{"spare", set_spare},
    Key{"store_type", set_store_type},
    Key{"timeout", set_seconds<&RendezvousSettings::timeout>},
    Key{"use_libuv", ignore},  // torchrun accepts it, and always uses libuv.
};

std::string known_keys() {
  std::string list;
  for (const Key& key : kKeys)
    list += (list.empty() ? "" : ", ") + std::string(key.name);
  return list;
}

std::string range(const RunSettings& run) {
  const std::string least = std::to_string(run.min_nodes);
  return run.min_nodes == run.max_nodes ? least : least + ":" + std::to_string(run.max_nodes);
}

std::string whole_seconds(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count());
}

}  // namespace

std::string_view to_string(ScalePolicy policy) {
  switch (policy) {
    case ScalePolicy::Now:
      return "now";
    case ScalePolicy::AtRestart:
      return "at-restart";
    case ScalePolicy::Never:
      return "never";
  }
  return "";
}

std::string_view to_string(OnNotice policy) {
  switch (policy) {
    case OnNotice::Auto:
      return "auto";
    case OnNotice::Stop:
      return "stop";
    case OnNotice::Shrink:
      return "shrink";
  }
  return "";
}

RestartBudgets restart_budgets(const RunSettings& run) {
  return {
      .failures = std::min(run.max_restarts, std::numeric_limits<int>::max() - kMaxRestartBudget),
      .policy = run.restart_policy.value_or(RestartPolicy{})};
}

bool agree(const RunSettings& here, const RunSettings& theirs) {
  RunSettings same = theirs;
  if (!here.on_notice || !theirs.on_notice) same.on_notice = here.on_notice;
  if (!here.restart_policy || !theirs.restart_policy) same.restart_policy = here.restart_policy;
  return here == same;
}

SettingsDifference difference(const RunSettings& here, const RunSettings& there) {
  SettingsDifference found;
  const auto compare = [&](std::string_view what, const std::string& mine,
                           const std::string& theirs) {
    if (mine == theirs) return;
    for (const auto& [text, value] :
         {std::pair(&found.here, &mine), std::pair(&found.there, &theirs)})
      text->append(text->empty() ? "" : ", ").append(what).append("=").append(*value);
  };
  compare("--nnodes", range(here), range(there));
  compare("--max-restarts", std::to_string(here.max_restarts), std::to_string(there.max_restarts));
  compare("--scale-policy", std::string(to_string(here.scale_policy)),
          std::string(to_string(there.scale_policy)));
  if (here.on_notice && there.on_notice)
    compare("--on-notice", std::string(to_string(*here.on_notice)),
            std::string(to_string(*there.on_notice)));
  if (here.restart_policy && there.restart_policy)
    compare("--restart-policy", to_string(*here.restart_policy), to_string(*there.restart_policy));
  compare("--rdzv-conf join_timeout", whole_seconds(here.join_timeout),
          whole_seconds(there.join_timeout));
  compare("--rdzv-conf last_call_timeout", whole_seconds(here.last_call_timeout),
          whole_seconds(there.last_call_timeout));
  return found;
}

NamedLimit reach_limit(const RendezvousSettings& settings) {
  if (settings.run.join_timeout < settings.read_timeout)
    return {settings.run.join_timeout, "join_timeout"};
  return {settings.read_timeout, "read_timeout"};
}

boost::system::result<RendezvousSettings, SettingsError> make_settings(
    const SettingsRequest& request, const Conf& conf) {
  RendezvousSettings settings;
  if (request.run_id.empty()) return SettingsError{"the run id (--rdzv-id) must not be empty"};
  if (request.min_nodes < 1)
    return SettingsError{"--nnodes: at least 1 node is needed, not " +
                         std::to_string(request.min_nodes)};
  if (request.max_nodes < request.min_nodes)
    return SettingsError{"--nnodes: the largest number (" + std::to_string(request.max_nodes) +
                         ") is below the smallest (" + std::to_string(request.min_nodes) + ")"};
  settings.run_id = request.run_id;
  settings.run.min_nodes = request.min_nodes;
  settings.run.max_nodes = request.max_nodes;
  settings.run.max_restarts = std::max(0, request.max_restarts);
  settings.run.on_notice = OnNotice::Auto;
  settings.run.restart_policy = request.restart_policy;
  for (const auto& [name, value] : conf) {
    const auto key =
        std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& k) { return k.name == name; });
    if (key == kKeys.end())
      return SettingsError{"--rdzv-conf: unknown key \"" + name + "\"; known are " + known_keys()};
    if (std::string wrong = key->set(settings, name, value); !wrong.empty())
      return SettingsError{std::move(wrong)};
  }
  return settings;
}

}  // namespace muster
