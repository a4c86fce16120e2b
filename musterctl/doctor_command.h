// The command line of `musterctl doctor`, and what it does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <CLI/App.hpp>

#include "musterctl/doctor_peer.h"
#include "musterctl/http_text.h"
#include "rendezvous/wire/token_proof.h"

namespace muster::ctl {

struct DoctorArguments {
  std::string rdzv_endpoint;
  std::string log_dir;
  std::string checkpoint_dir;
  std::string run = "doctor";
  std::string local_addr;
  int nodes = 0;  // 0: this machine alone.
  bool quick = false;
  bool no_torch = false;
};
/// Nothing happens if the doctor alone does not have this option.
void add_doctor_option(CLI::App& command, std::string_view option, DoctorArguments& arguments);
/// The command that muster starts for the doctor of several nodes; people are not shown it.
CLI::App& add_doctor_peer(CLI::App& app, DoctorPeerOptions& options);

/// What the doctor shares with the other commands.
struct DoctorSurroundings {
  std::optional<Endpoint> musterd = {};  // Its HTTP; nothing: it is not asked.
  SharedTokenCrypto token = {};
  std::string token_file;
  TlsFiles tls;
  bool json = false;
};
struct DoctorAnswer {
  std::string usage_error = {};  // Empty: the rest counts.
  std::string text = {};
  bool ok = false;
};
DoctorAnswer run_doctor(const DoctorArguments& arguments, const DoctorSurroundings& around);

}  // namespace muster::ctl
