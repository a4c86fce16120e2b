// Looks at this machine for the doctor. Changes nothing.
#pragma once

#include <optional>
#include <string>

#include "musterctl/client.h"
#include "musterctl/doctor.h"

namespace muster::ctl {

struct DoctorTargets {
  std::optional<Endpoint> musterd = {};     // Its HTTP.
  SharedTokenCrypto token = {};             // What musterd's HTTP asks for; null: nothing.
  std::optional<Endpoint> rendezvous = {};  // Where the nodes of a job meet.
  std::string log_dir = {};                 // Empty: not looked at.
  std::string checkpoint_dir = {};          // As log_dir.
  bool quick = false;                       // No program is started.
};

/// Takes up to some seconds: names are looked up, endpoints connected to, Python asked.
DoctorFacts gather_facts(const DoctorTargets& targets);

/// "2026-11-22T21:39:01.123Z" as seconds since 1970; nothing if it is not such a text.
std::optional<double> parse_time(const std::string& text);

}  // namespace muster::ctl
