// musterd's options: one table for the command line, --config's file, --help and completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include "rendezvous/musterd_config.h"
#include "rendezvous/net/store_server.h"
#include "rendezvous/service/run_service.h"
#include "rendezvous/tls/tls_context.h"

namespace muster {

struct Arguments {
  StoreServerOptions store;
  double validate_seconds = 30;
  double stalled_seconds = 300;
  RunServiceOptions runs;
  bool only_store = false;
  std::string http;  // Empty: none.
  double lease_seconds = 5;
  double keep_alive_seconds = 5;
  double dead_after_seconds = 15;
  double forget_run_seconds = 60;
  std::string state_dir;
  std::string state;  // Empty: not shared with other musterds.
  std::string state_password_file;
  TlsFiles state_tls;  // To etcd.
  int leader_lease_seconds = 3;
  std::string log_level = "info";
  std::string token_file;
  std::string run_tokens_file;
  std::string c10d_allow;
  TlsFiles tls;
  std::vector<std::string> tls_allow_rules;  // As given.
  TlsAllow tls_allow;                        // The same, once the options are read.
};

/// What the command line and --config's file say.
struct MusterdCommandLine {
  Arguments arguments;
  ConfigOptions config;
  OptionValues values;
  std::vector<std::string> errors;
};

/// Throws what CLI11 throws where the command line is wrong, and for --help.
void read_command_line(CLI::App& app, const std::vector<std::string>& words,
                       MusterdCommandLine& read);

/// The same at a reload, where everything that is wrong is an error.
MusterdCommandLine read_again(const std::vector<std::string>& words);

/// From a number that was checked.
Duration to_duration(double seconds);

// The options that a reload changes: set_what_can_be_changed() sets each of them.
inline constexpr std::string_view kChangeable[] = {
    "log-level",
    "max-key-bytes",
    "max-value-bytes",
    "max-request-keys",
    "max-request-bytes",
    "max-keys",
    "max-total-bytes",
    "max-connections",
    "max-queued-bytes",
    "max-connections-per-address",
    "max-run-connections",
    "max-run-keys",
    "max-run-bytes",
    "max-run-queued-bytes",
    "max-runs",
    "max-queued-total-bytes",
    "validate-seconds",
    "stalled-seconds",
    "forget-run-seconds",
    "tls-allow",
};

/// Reads --rdzv-run-tokens' file, at the start and at each reload. What is wrong with it; empty:
/// nothing.
std::string read_run_tokens(Arguments& arguments);

/// `server`: null while this musterd stands by.
void set_what_can_be_changed(const Arguments& arguments, StoreServer* server);

}  // namespace muster
