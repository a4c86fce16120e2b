// The doctor's judgement of the endpoints: are they reached, and do the hosts there belong
// together? Pure.
#pragma once

#include <string>
#include <vector>

#include "musterctl/doctor.h"

namespace muster::ctl {

/// "a, b, c"
std::string joined(const std::vector<std::string>& words);

void check_endpoints(const DoctorFacts& facts, std::vector<Check>& checks);

}  // namespace muster::ctl
