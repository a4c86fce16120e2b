// What the agent makes of what it inherits, before the job begins.

#pragma once

#include <map>
#include <string>
#include <vector>

namespace muster {

/// What options say about workers' variables goes before what the environment says.
std::vector<std::string> with_overrides(std::vector<std::string> environment,
                                        const std::map<std::string, std::string>& overrides);

/// The store holds a descriptor for every worker; workers get the shim's limit, which stays.
void raise_descriptor_limit();

}  // namespace muster
