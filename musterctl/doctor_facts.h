// Gathers the facts about this machine for the doctor. Changes nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "musterctl/client.h"
#include "musterctl/doctor.h"

namespace muster::ctl {

struct DoctorTargets {
  std::optional<Endpoint> musterd = {};   // musterd's HTTP.
  SharedTokenCrypto token = {};           // Null: none.
  std::vector<Endpoint> rendezvous = {};  // Where the nodes of a job meet.
  std::string run = {};                   // For the hosts there.
  TlsFiles tls = {};                      // The same.
  std::string log_dir = {};               // Empty: not checked.
  std::string checkpoint_dir = {};        // Empty: not checked.
  bool quick = false;                     // Start no program, and do not ask NVML.
};

/// Takes some seconds: looks up names, connects to endpoints, and runs Python, which imports torch
/// if there are GPUs (at most 60 s).
DoctorFacts gather_facts(const DoctorTargets& targets);

/// Converts "2026-11-22T21:39:01.123Z" to seconds since 1970; nothing if the text is not of this
/// form.
std::optional<double> parse_time(const std::string& text);

}  // namespace muster::ctl
