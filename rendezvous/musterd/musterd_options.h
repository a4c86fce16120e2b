// musterd's options: one table for the command line, the file of --config, --help and completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>

#include "rendezvous/host/run_service.h"
#include "rendezvous/musterd/musterd_config.h"
#include "rendezvous/server/store_server.h"
#include "rendezvous/tls/tls_context.h"

namespace muster {

struct Arguments {
  StoreServerOptions store;
  double validate_seconds = 30;
  double stalled_seconds = 300;
  RunServiceOptions runs;
  bool only_store = false;
  std::string http;  // Empty: no HTTP.
  double lease_seconds = 5;
  double keep_alive_seconds = 5;
  double dead_after_seconds = 15;
  double forget_run_seconds = 60;
  std::string state_dir;
  std::string state;  // The etcd of the shared state. Empty: the state is not shared.
  std::string state_password_file;
  TlsFiles state_tls;  // For connections to etcd.
  int leader_lease_seconds = 3;
  std::string log_level = "info";
  std::string token_file;  // Also that of the credential rdzv-token. Empty: no token.
  std::string run_tokens_file;
  std::string c10d_allow;
  TlsFiles tls;
  std::vector<std::string> tls_allow_rules;  // The rules as given.
  TlsAllow tls_allow;                        // The parsed rules, set after all options are read.
};

/// The settings of the command line and of the file of --config.
struct MusterdCommandLine {
  Arguments arguments;
  ConfigOptions config;
  OptionValues values;
  std::vector<std::string> errors;
};

/// Throws CLI11's exceptions: for a wrong command line, and for --help and --version.
void read_command_line(CLI::App& app, const std::vector<std::string>& words,
                       MusterdCommandLine& read);

/// Reads the options and `run_tokens_file` again for a reload. That file is the one in use: another
/// path in the options needs a restart. All problems are returned as errors.
MusterdCommandLine read_again(const std::vector<std::string>& words,
                              const std::string& run_tokens_file);

/// Whether nodes prove that they may take part: with a token, or with a client certificate.
bool nodes_prove(const Arguments& arguments);

/// `seconds` must have been checked: it must fit.
Duration to_duration(double seconds);

// The options that a reload can change. apply_changeable_options() sets each of them.
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

/// Reads the file of --rdzv-run-tokens, at the start and at each reload. Returns an empty text, or
/// an error.
std::string read_run_tokens(Arguments& arguments);

/// Applies the options of kChangeable and the tokens of runs. `server` is null while this musterd
/// stands by.
void apply_changeable_options(const Arguments& arguments, StoreServer* server);

}  // namespace muster
