#include "agent/io/job_setup.h"

#include <sys/resource.h>

namespace muster {

std::vector<std::string> with_overrides(std::vector<std::string> environment,
                                        const std::map<std::string, std::string>& overrides) {
  std::erase_if(environment, [&overrides](const std::string& variable) {
    return overrides.contains(variable.substr(0, variable.find('=')));
  });
  for (const auto& [name, value] : overrides)
    environment.push_back(name + "=" + value);
  return environment;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace muster
