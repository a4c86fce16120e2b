// The command `musterctl doctor`: its options, and how it runs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/App.hpp>

#include "musterctl/doctor_peer.h"
#include "musterctl/http_text.h"
#include "rendezvous/access/token_proof.h"

namespace muster::ctl {

struct DoctorArguments {
  std::string rdzv_endpoint;
  std::string log_dir;
  std::string checkpoint_dir;
  std::string run = "doctor";
  std::string local_addr;
  int nodes = 0;  // 0: only this machine.
  bool quick = false;
  bool no_torch = false;
};
/// Adds the option to the command. Does nothing if `option` is not one of the doctor's own.
void add_doctor_option(CLI::App& command, std::string_view option, DoctorArguments& arguments);
/// Adds the command that muster starts for the doctor of several nodes. The help does not show it.
CLI::App& add_doctor_peer(CLI::App& app, DoctorPeerOptions& options);

/// The arguments that the doctor shares with the other commands.
struct DoctorContext {
  std::optional<Endpoint> musterd = {};  // musterd's HTTP; nothing: it is not asked.
  SharedTokenCrypto token = {};
  std::string token_file;
  TlsFiles tls;
  bool json = false;
  std::size_t columns = 0;  // Of the terminal, if the answer goes to one.
};
struct DoctorAnswer {
  std::string usage_error = {};  // If not empty, the other fields have no meaning.
  std::string text = {};
  bool ok = false;
};
DoctorAnswer run_doctor(const DoctorArguments& arguments, const DoctorContext& context);

}  // namespace muster::ctl
