#include "rendezvous/musterd/musterd_options.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <system_error>
#include <type_traits>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/asio/ip/address.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "base/build_info.h"
#include "base/parsed_size.h"
#include "base/printable_text.h"
#include "base/system/command_help.h"
#include "base/whole_number.h"
#include "rendezvous/access/openssl_token.h"
#include "rendezvous/access/token_file.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/state/etcd/etcd_address.h"

namespace muster {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;  // Where muster's c10d nodes look, too.

/// Checks for a whole number that fits the type. CLI11 itself would replace a number that is too
/// large by the largest one.
template <typename Number>
std::string check_count(const std::string& text) {
  if (whole_number<Number>(text).value_or(0) > 0) return {};
  return fmt::format("'{}' is not a whole number from 1 to {}", text,
                     std::numeric_limits<Number>::max());
}

/// The same for a size, which may end in K, M or G. Writes the number of bytes into the text.
template <typename Number>
std::string read_size(std::string& text) {
  const auto bytes = parse_size(text);
  if (!bytes || *bytes == 0 || *bytes > std::numeric_limits<Number>::max())
    return fmt::format("'{}' is no size: give bytes, at least 1, or as in 500K, 100M or 2G",
                       printable_text(text, 64));
  text = std::to_string(*bytes);
  return {};
}

std::string check_seconds(const std::string& text) {
  double number = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && number >= 0.001 && number <= 1e9) return {};
  return fmt::format("'{}' is not a number of seconds from 0.001 to 1e9", text);
}

std::string check_file_name(const std::string& text) {
  return text.empty() ? "a file's name is missing" : std::string();
}

void add_options(CLI::App& app, Arguments& arguments) {
  StoreServerOptions& store = arguments.store;
  app.add_option("--bind", store.addresses,
                 "Address to listen on; several with commas, or given again")
      ->type_name("ADDRESS,...")
      ->delimiter(',')
      ->default_str("every interface, IPv6 and IPv4")
      ->check(CLI::Validator(
          [](std::string& text) {
            boost::system::error_code ec;
            boost::asio::ip::make_address(text, ec);
            return ec ? text + " is not a numeric IPv4 or IPv6 address" : std::string();
          },
          ""));
  store.port = kDefaultPort;
  app.add_option("--port", store.port, "Port where nodes meet; 0 takes a free one")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--log-level", arguments.log_level, "The least important lines that are written")
      ->check(one_of({"debug", "info", "warning", "error", "critical"}))
      ->capture_default_str();

  app.add_option("--http", arguments.http,
                 "Serve a page, JSON and metrics over HTTP at [ADDRESS:]PORT; without an "
                 "address for this machine only")
      ->type_name("[ADDRESS:]PORT")
      ->check(CLI::Validator(
          [](std::string& text) {
            const auto parsed = http::parse_address(text);
            return parsed ? std::string() : parsed.error().reason;
          },
          ""));
  const CLI::Validator has_name(check_file_name, "");
  app.add_option("--rdzv-token-file", arguments.token_file,
                 "File with the token that nodes must prove to have; without it the systemd "
                 "credential rdzv-token, where there is one [MUSTER_RDZV_TOKEN_FILE]")
      ->type_name("FILE")
      ->check(has_name);

  app.add_option("--rdzv-run-tokens", arguments.run_tokens_file,
                 "File with a line `RUN TOKEN` for each run that has a token of its own")
      ->type_name("FILE")
      ->check(has_name);

  const auto file = [&](const char* name, std::string& value, const char* text) {
    app.add_option(name, value, text)->type_name("FILE")->check(has_name);
  };
  file("--tls-cert", arguments.tls.certificate,
       "Serve TLS with this certificate (PEM): muster nodes and HTTP; SIGHUP reads it again");
  file("--tls-key", arguments.tls.key, "File with the certificate's key");
  file("--tls-ca", arguments.tls.ca,
       "Let in only TLS clients with a certificate that this CA has signed");

  app.add_option("--tls-allow", arguments.tls_allow_rules,
                 "With --tls-ca: let a client into these runs only if its certificate has one of "
                 "these DNS names; RUN may end in '*'. May be given again")
      ->type_name("RUN=NAME,...")
      ->check(CLI::Validator(
          [](std::string& text) {
            const auto parsed = parse_tls_allow(std::span(&text, 1));
            return parsed ? std::string() : parsed.error().reason;
          },
          ""));

  app.add_option("--c10d-allow", arguments.c10d_allow,
                 "Who may come by PyTorch's protocol: off, any, or a list of loopback, members, "
                 "addresses and networks")
      ->type_name("WHO")
      ->check(CLI::Validator(
          [](std::string& text) {
            const auto parsed = parse_c10d_allow(text);
            return parsed ? std::string() : parsed.error().reason;
          },
          ""))
      ->default_str("any; with a token or --tls-ca members");

  app.add_flag("--only-store", arguments.only_store, "Serve no rendezvous, just keys and values");

  const auto seconds = [&app](const char* name, double& value, const char* text,
                              const char* group = "Limits") {
    app.add_option(name, value, text)
        ->group(group)
        ->type_name("SECONDS")
        ->check(CLI::Validator(check_seconds, ""))
        ->capture_default_str();
  };
  const char* rendezvous = "Rendezvous";
  seconds("--lease-seconds", arguments.lease_seconds,
          "A muster node that was not heard for this long is lost", rendezvous);
  seconds("--keep-alive-seconds", arguments.keep_alive_seconds,
          "keep_alive_interval of the torchrun nodes", rendezvous);
  seconds("--dead-after-seconds", arguments.dead_after_seconds,
          "A torchrun node without a new heartbeat for this long is lost", rendezvous);
  seconds("--forget-run-seconds", arguments.forget_run_seconds,
          "Remove the keys of a run when all its nodes have been away for this long, and let a new "
          "job use its id",
          rendezvous);
  app.add_option(
         "--state-dir", arguments.state_dir,
         "Keep what is known of the runs in this folder, beyond a restart [STATE_DIRECTORY]")
      ->group("State")
      ->type_name("FOLDER");
  app.add_option("--state", arguments.state,
                 "Share what is known of the runs with other musterds through etcd: one leads, the "
                 "others stand by")
      ->group("State")
      ->type_name("etcd://[USER@]HOST:PORT,.../PREFIX")
      ->check(CLI::Validator(
          [](std::string& text) {
            const auto parsed = parse_etcd_address(text);
            return parsed ? std::string() : parsed.error().reason;
          },
          ""));
  app.add_option("--state-password-file", arguments.state_password_file,
                 "With --state: the password of etcd's user [ETCDCTL_PASSWORD]")
      ->group("State")
      ->type_name("FILE");
  const auto state_file = [&app](const char* name, std::string& value, const char* text) {
    app.add_option(name, value, text)
        ->group("State")
        ->type_name("FILE")
        ->check(CLI::Validator(check_file_name, ""));
  };
  state_file("--state-ca", arguments.state_tls.ca,
             "With --state: speak TLS to etcd, whose certificates this CA has signed "
             "[ETCDCTL_CACERT]");
  state_file("--state-cert", arguments.state_tls.certificate,
             "With --state-ca: musterd's own certificate for etcd [ETCDCTL_CERT]");
  state_file("--state-key", arguments.state_tls.key,
             "With --state-cert: the certificate's key [ETCDCTL_KEY]");
  app.add_option("--leader-lease-seconds", arguments.leader_lease_seconds,
                 "With --state: another musterd leads after the leader was silent for this long")
      ->group("State")
      ->type_name("SECONDS")
      ->check(CLI::Range(2, 3600))
      ->capture_default_str();
  app.add_option("--history", arguments.runs.history, "Ended runs that are remembered")
      ->group("State")
      ->type_name("N")
      ->check(CLI::Validator(check_count<std::size_t>, ""))
      ->capture_default_str();

  const auto limit = [&app](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)
        ->group("Limits")
        ->type_name("N")
        ->check(CLI::Validator(check_count<std::remove_reference_t<decltype(value)>>, ""))
        ->capture_default_str();
  };
  const auto size = [&app](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)
        ->group("Limits")
        ->type_name("SIZE")
        ->transform(CLI::Validator(read_size<std::remove_reference_t<decltype(value)>>, ""))
        ->capture_default_str();
  };
  size("--max-key-bytes", store.codec.key_bytes, "Length of a key");
  size("--max-value-bytes", store.codec.value_bytes, "Length of one value in a request");
  limit("--max-request-keys", store.codec.keys_per_request, "Keys in one request");
  size("--max-request-bytes", store.codec.request_bytes, "Length of one request");
  limit("--max-keys", store.table.keys, "Names stored, queued or waited for");
  size("--max-total-bytes", store.table.bytes,
       "Memory for names, values, queues, waits, states and half requests");
  limit("--max-connections", store.limits.connections, "Connections at once");
  limit("--max-connections-per-address", store.limits.connections_per_address,
        "Connections at once from one address");
  size("--max-queued-bytes", store.limits.queued_bytes, "Unread replies of one client");
  size("--max-queued-total-bytes", store.limits.queued_total_bytes,
       "Memory of the unread replies of all clients");
  limit("--max-run-connections", store.run_limits.connections, "Connections of one run");
  limit("--max-run-keys", store.run_limits.keys, "Keys of one run");
  size("--max-run-bytes", store.run_limits.bytes, "Memory for the keys and values of one run");
  size("--max-run-queued-bytes", store.run_limits.queued_bytes,
       "Unread replies of all connections of one run");
  limit("--max-runs", arguments.runs.runs, "Jobs that have their rendezvous here at once");
  seconds("--validate-seconds", arguments.validate_seconds,
          "From connecting to a first request; with a token to its proof");
  seconds("--stalled-seconds", arguments.stalled_seconds,
          "Half a request, or unread replies, without progress");
}

// An error if two options exclude each other. Empty: no error.
std::string contradiction_in(const CLI::App& app, const Arguments& arguments) {
  if (arguments.only_store && !arguments.state_dir.empty())
    return "--state-dir: a server that is --only-store has no runs to keep";
  if (arguments.only_store && !arguments.state.empty())
    return "--state: a server that is --only-store has no runs to keep";
  if (!arguments.state.empty() && !arguments.state_dir.empty())
    return "--state and --state-dir: the runs are kept in one place; leave one of them out";
  if (arguments.state.empty() && !arguments.state_password_file.empty())
    return "--state-password-file is for etcd; give --state, too";
  if (arguments.state.empty() && arguments.state_tls.any())
    return "--state-ca, --state-cert and --state-key are for etcd; give --state, too";
  if (arguments.state.empty() && app.count("--leader-lease-seconds") > 0)
    return "--leader-lease-seconds is for etcd; give --state, too";
  if (arguments.state_tls.certificate.empty() != arguments.state_tls.key.empty())
    return "--state-cert and --state-key: a certificate needs its key; give both";
  if (arguments.tls.certificate.empty() != arguments.tls.key.empty())
    return "--tls-cert and --tls-key: a certificate needs its key; give both";
  if (!arguments.tls.ca.empty() && arguments.tls.certificate.empty())
    return "--tls-ca: clients show their certificates through TLS only; give --tls-cert and "
           "--tls-key, too";
  if (!arguments.tls_allow_rules.empty() && arguments.tls.ca.empty())
    return "--tls-allow: clients are known by their certificates; give --tls-ca, too, the CA that "
           "has signed them";
  if (arguments.only_store && arguments.tls.any())
    return "--tls-cert: a server that is --only-store has PyTorch's protocol only, whose clients "
           "speak no TLS";
  const bool has_token = !arguments.token_file.empty();
  if (!has_token && !arguments.run_tokens_file.empty())
    return "--rdzv-run-tokens: only with --rdzv-token-file, which all other runs must have";
  if (has_token && arguments.only_store)
    return "--only-store has no door that asks for a token; leave out --rdzv-token-file, and list "
           "in --c10d-allow who may come";
  return has_token ? std::string() : http::refusal_without_token("--http", arguments.http);
}

/// Sets the rule of the c10d door. Returns an empty text, or an error as a sentence.
std::string read_c10d_allow(Arguments& arguments) {
  C10dAllow allow = service_c10d_allow(nodes_prove(arguments));
  if (!arguments.c10d_allow.empty()) {
    auto given = parse_c10d_allow(arguments.c10d_allow);
    if (!given) return "--c10d-allow: " + given.error().reason;
    allow = *std::move(given);
  }
  if (allow.members && !nodes_prove(arguments))
    return "--c10d-allow: members are known by their token or certificate; give --rdzv-token-file "
           "or --tls-ca, too, or list networks";
  arguments.store.c10d_allow = std::move(allow);
  return {};
}

}  // namespace

bool nodes_prove(const Arguments& arguments) {
  return !arguments.token_file.empty() || !arguments.tls.ca.empty();
}

Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string read_run_tokens(Arguments& arguments) {
  auto tokens = load_run_tokens(arguments.run_tokens_file);
  if (!tokens) return "--rdzv-run-tokens: " + tokens.error().reason;
  arguments.store.run_tokens = *std::move(tokens);
  return {};
}

void apply_changeable_options(const Arguments& arguments, StoreServer* server) {
  spdlog::set_level(spdlog::level::from_str(arguments.log_level));
  if (server == nullptr) return;
  server->set_run_tokens(arguments.store.run_tokens);
  server->set_limits({.codec = arguments.store.codec,
                      .table = arguments.store.table,
                      .connections = arguments.store.limits,
                      .of_a_run = arguments.store.run_limits,
                      .validate_within = to_duration(arguments.validate_seconds),
                      .stalled_after = to_duration(arguments.stalled_seconds),
                      .runs = arguments.runs.runs,
                      .forget_run_after = to_duration(arguments.forget_run_seconds)});
}

void read_command_line(CLI::App& app, const std::vector<std::string>& words,
                       MusterdCommandLine& read) {
  Arguments& arguments = read.arguments;
  std::string version = build_text("musterd");
  version.pop_back();  // Removes the line feed, because CLI11 adds one.
  app.set_version_flag("--version", version, "Print musterd's version");
  add_config_options(app, read.config);
  add_options(app, arguments);
  parse_words(app, words);
  if (!read.config.file.empty()) {
    const auto scratch = std::make_shared<Arguments>();
    const auto configured = with_config(
        app, read.config.file, words, [&scratch](CLI::App& each) { add_options(each, *scratch); });
    read.errors = configured.errors;
    if (!read.errors.empty()) return;
    parse_words(app, configured.words);
  }
  const char* const variable = std::getenv("MUSTER_RDZV_TOKEN_FILE");
  if (arguments.token_file.empty() && variable != nullptr && !arguments.only_store)
    arguments.token_file = variable;
  if (arguments.token_file.empty())
    arguments.token_file = credential_token_file().value_or(std::string());
  if (const std::string wrong = contradiction_in(app, arguments); !wrong.empty())
    throw CLI::ValidationError(wrong);
  if (const std::string wrong = read_c10d_allow(arguments); !wrong.empty())
    throw CLI::ValidationError(wrong);
  auto allow = parse_tls_allow(arguments.tls_allow_rules);
  if (!allow) throw CLI::ValidationError("--tls-allow: " + allow.error().reason);
  arguments.tls_allow = *std::move(allow);
  read.values = option_values(app);
}

MusterdCommandLine read_again(const std::vector<std::string>& words,
                              const std::string& run_tokens_file) {
  MusterdCommandLine read;
  CLI::App app;
  try {
    read_command_line(app, words, read);
    read.arguments.run_tokens_file = run_tokens_file;
    if (std::string wrong = read_run_tokens(read.arguments); !wrong.empty())
      read.errors.push_back(std::move(wrong));
  } catch (const CLI::ParseError& error) {
    read.errors.emplace_back(error.what());
  }
  return read;
}

}  // namespace muster
