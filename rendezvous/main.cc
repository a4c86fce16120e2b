// musterd: the store and the rendezvous of any number of runs, as a program of its own.

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "rendezvous/core/build_info.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/musterd_config.h"
#include "rendezvous/musterd_process.h"
#include "rendezvous/net/guarded_loop.h"
#include "rendezvous/net/openssl_token.h"
#include "rendezvous/net/service_manager.h"
#include "rendezvous/net/store_server.h"
#if MUSTER_SQLITE
#include "rendezvous/state/sqlite_state.h"
#endif

namespace muster {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

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
  std::string log_level = "info";
  std::string token_file;
  std::string c10d_allow;
};

/// A whole number that fits: CLI11 by itself takes the largest one for any that does not.
template <typename Number>
std::string check_count(const std::string& text) {
  Number number = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && number > 0) return {};
  return fmt::format("'{}' is not a whole number from 1 to {}", text,
                     std::numeric_limits<Number>::max());
}

std::string check_seconds(const std::string& text) {
  double number = 0;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && number >= 0.001 && number <= 1e9) return {};
  return fmt::format("'{}' is not a number of seconds from 0.001 to 1e9", text);
}

void add_options(CLI::App& app, Arguments& arguments) {
  StoreServerOptions& store = arguments.store;
  app.add_option("--bind", store.addresses, "Address to listen on; may be given again")
      ->type_name("ADDRESS")
      ->default_str("every interface, IPv6 and IPv4")
      ->check(CLI::Validator(
          [](std::string& text) {
            boost::system::error_code ec;
            boost::asio::ip::make_address(text, ec);
            return ec ? text + " is not a numeric IPv4 or IPv6 address" : std::string();
          },
          ""));
  app.add_option("--port", store.port, "Port; 0 takes a free one")
      ->type_name("PORT")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--log-level", arguments.log_level, "debug, info, warning, error or critical")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "critical"}))
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
  app.add_option("--rdzv-token-file", arguments.token_file,
                 "File with the token that nodes must prove to have")
      ->type_name("FILE")
      ->check(CLI::Validator(
          [](std::string& text) {
            return text.empty() ? "a file's name is missing" : std::string();
          },
          ""))
      ->default_str("the systemd credential rdzv-token, if there is one");

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
      ->default_str("any; with a token members");

  app.add_flag("--only-store", arguments.only_store, "Serve no rendezvous, just keys and values");

  const auto limit = [&app](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)
        ->group("Limits")
        ->type_name("N")
        ->check(CLI::Validator(check_count<std::remove_reference_t<decltype(value)>>, ""))
        ->capture_default_str();
  };
  limit("--max-key-bytes", store.codec.key_bytes, "Length of a key");
  limit("--max-value-bytes", store.codec.value_bytes, "Length of one value in a request");
  limit("--max-request-keys", store.codec.keys_per_request, "Keys in one request");
  limit("--max-request-bytes", store.codec.request_bytes, "Length of one request");
  limit("--max-keys", store.table.keys, "Names stored, queued or waited for");
  limit("--max-total-bytes", store.table.bytes,
        "Memory for names, values, queues, waits, states and half requests");
  limit("--max-connections", store.limits.connections, "Connections at once");
  limit("--max-connections-per-address", store.limits.connections_per_address,
        "Connections at once from one address");
  limit("--max-queued-bytes", store.limits.queued_bytes, "Unread replies of one client");
  limit("--max-queued-total-bytes", store.limits.queued_total_bytes,
        "Memory of the unread replies of all clients");
  limit("--max-run-connections", store.run_limits.connections, "Connections of one run");
  limit("--max-run-keys", store.run_limits.keys, "Keys of one run");
  limit("--max-run-bytes", store.run_limits.bytes, "Memory for the keys and values of one run");
  limit("--max-run-queued-bytes", store.run_limits.queued_bytes,
        "Unread replies of all connections of one run");
  limit("--max-runs", arguments.runs.runs, "Jobs that have their rendezvous here at once");
  const auto seconds = [&app](const char* name, double& value, const char* text,
                              const char* group = "Limits") {
    app.add_option(name, value, text)
        ->group(group)
        ->type_name("SECONDS")
        ->check(CLI::Validator(check_seconds, ""))
        ->capture_default_str();
  };
  seconds("--validate-seconds", arguments.validate_seconds,
          "From connecting to a valid first request");
  seconds("--stalled-seconds", arguments.stalled_seconds,
          "Half a request, or unread replies, without progress");
  const char* rendezvous = "Rendezvous";
  seconds("--lease-seconds", arguments.lease_seconds,
          "A muster node that was not heard for this long is lost", rendezvous);
  seconds("--keep-alive-seconds", arguments.keep_alive_seconds,
          "keep_alive_interval of the torchrun nodes", rendezvous);
  seconds("--dead-after-seconds", arguments.dead_after_seconds,
          "A torchrun node without a new heartbeat for this long is lost", rendezvous);
  seconds("--forget-run-seconds", arguments.forget_run_seconds,
          "A run that nobody is in any more is forgotten after this", rendezvous);
  app.add_option(
         "--state-dir", arguments.state_dir,
         "Keep what is known of the runs in this folder, beyond a restart [$STATE_DIRECTORY]")
      ->group("State")
      ->type_name("FOLDER");
  app.add_option("--history", arguments.runs.history, "Ended runs that are remembered")
      ->group("State")
      ->type_name("N")
      ->check(CLI::Validator(check_count<std::size_t>, ""))
      ->capture_default_str();
}

Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// One line for whoever started us and waits for it; everything else goes to stderr.
void announce(const boost::asio::ip::tcp::endpoint& endpoint) {
  std::printf("musterd: listening on %s\n", to_text(endpoint).c_str());
  std::fflush(stdout);
}

// The line of `systemctl status`.
std::string status_of(const StoreServer& server) {
  const StoreServerStats stats = server.stats();
  std::string text =
      fmt::format("listening on {}, {} connections, {} keys", to_text(server.endpoints().front()),
                  stats.connections, stats.keys);
  if (!stats.state_problem.empty())
    text += "; THE STATE IS NOT RECORDED, new runs are refused: " + stats.state_problem;
  return text;
}

// The folder that was asked for, or the first one that systemd gives a service (StateDirectory=).
std::string state_folder(const Arguments& arguments) {
  if (!arguments.state_dir.empty() || arguments.only_store) return arguments.state_dir;
  const char* given = std::getenv("STATE_DIRECTORY");
  const std::string_view folders = given == nullptr ? "" : given;
  return std::string(folders.substr(0, folders.find(':')));
}

// Whether musterd may start. Without a folder there is no state.
bool open_state(Arguments& arguments) {
  const std::string folder = state_folder(arguments);
  if (folder.empty()) return true;
#if MUSTER_SQLITE
  auto state = open_sqlite_state({.folder = folder, .history = arguments.runs.history});
  if (state) {
    arguments.store.state = std::move(*state);
    return true;
  }
  std::fprintf(stderr, "musterd: %s\n", state.error().reason.c_str());
  return false;
#else
  if (arguments.state_dir.empty()) {
    spdlog::warn("state_not_kept folder={} reason=\"this musterd was built without SQLite\"",
                 folder);
    return true;
  }
  std::fprintf(stderr,
               "musterd: --state-dir: this musterd was built without SQLite "
               "(MUSTER_SQLITE=OFF) and cannot keep its state\n");
  return false;
#endif
}

// Empty if HTTP is not wanted; null if it cannot be had, which is said.
std::optional<std::unique_ptr<http::HttpServer>> start_http(const std::string& address,
                                                            SharedTokenCrypto token,
                                                            boost::asio::io_context& loop,
                                                            StoreServer& store) {
  if (address.empty()) return std::nullopt;
  const auto parsed = http::parse_address(address);
  if (!parsed) return nullptr;
  if (!token && !http::is_loopback(*parsed)) {
    std::fprintf(stderr,
                 "musterd: --http: others than this machine's users reach %s, and without a token "
                 "nobody would be asked who they are. Give --rdzv-token-file, too, or leave the "
                 "address out (a port alone means 127.0.0.1) and use ssh -L from elsewhere\n",
                 address.c_str());
    return nullptr;
  }
  auto started = http::HttpServer::start(*parsed, std::move(token), loop, store);
  if (started) return std::move(*started);
  std::fprintf(stderr, "musterd: --http: %s\n", started.error().what().c_str());
  return nullptr;
}

// Who may come: the token and the c10d door. A sentence if that cannot be; empty: it can.
std::string take_access(Arguments& arguments) {
  if (arguments.token_file.empty())
    arguments.token_file = credential_token_file().value_or(std::string());
  auto token = load_token(arguments.token_file);
  if (!token) return token.error().reason;
  const bool has_token = *token != nullptr;
  if (has_token && arguments.only_store)
    return "--only-store has no door that asks for a token; leave out --rdzv-token-file, and list "
           "in "
           "--c10d-allow who may come";
  C10dAllow allow = service_c10d_allow(has_token);
  if (!arguments.c10d_allow.empty()) {
    auto given = parse_c10d_allow(arguments.c10d_allow);
    if (!given) return "--c10d-allow: " + given.error().reason;
    allow = *std::move(given);
  }
  if (allow.members && !has_token)
    return "--c10d-allow: members are known by their token; give --rdzv-token-file, too, or list "
           "networks";
  spdlog::info("access token={} c10d_allow={}{}", has_token ? "yes" : "no", allow.text,
               has_token ? ""
                         : " advice=\"whoever reaches the port can join and end jobs; "
                           "--rdzv-token-file asks for a token\"");
  arguments.store.token = *std::move(token);
  arguments.store.c10d_allow = std::move(allow);
  return {};
}

// The options that a reload changes: set_what_can_be_changed() sets each of them.
constexpr std::string_view kChangeable[] = {
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
};

void set_what_can_be_changed(const Arguments& arguments, StoreServer& server) {
  spdlog::set_level(spdlog::level::from_str(arguments.log_level));
  server.set_limits({.codec = arguments.store.codec,
                     .table = arguments.store.table,
                     .connections = arguments.store.limits,
                     .of_a_run = arguments.store.run_limits,
                     .validate_within = to_duration(arguments.validate_seconds),
                     .stalled_after = to_duration(arguments.stalled_seconds),
                     .runs = arguments.runs.runs,
                     .forget_run_after = to_duration(arguments.forget_run_seconds)});
}

/// What the command line and --config's file say.
struct CommandLine {
  Arguments arguments;
  ConfigOptions config;
  OptionValues values;
  std::vector<std::string> errors;
};

/// Throws what CLI11 throws where the command line is wrong, and for --help.
void read_command_line(CLI::App& app, const std::vector<std::string>& words, CommandLine& read) {
  Arguments& arguments = read.arguments;
  std::string version = build_text("musterd");
  version.pop_back();  // CLI11 ends the line.
  app.set_version_flag("--version", version);
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
  if (arguments.only_store && !arguments.state_dir.empty())
    throw CLI::ValidationError("--state-dir: a server that is --only-store has no runs to keep");
  read.values = option_values(app);
}

/// The same at a reload, where everything that is wrong is an error.
CommandLine read_again(const std::vector<std::string>& words) {
  CommandLine read;
  CLI::App app;
  try {
    read_command_line(app, words, read);
    if (read.config.file.empty()) read.errors.emplace_back("no --config was given");
  } catch (const CLI::ParseError& error) {
    read.errors.emplace_back(error.what());
  }
  return read;
}

int serve(CommandLine command_line, const std::vector<std::string>& words) {
  Arguments& arguments = command_line.arguments;
  if (const std::string wrong = take_access(arguments); !wrong.empty()) {
    std::fprintf(stderr, "musterd: %s\n", wrong.c_str());
    return kExitFailure;
  }
  arguments.store.validate_within = to_duration(arguments.validate_seconds);
  arguments.store.stalled_after = to_duration(arguments.stalled_seconds);
  auto descriptors = inherited_descriptors();
  if (!descriptors) {
    std::fprintf(stderr, "musterd: LISTEN_FDS is '%s', and should be a count from 0 to 64\n",
                 std::getenv("LISTEN_FDS"));
    return kExitFailure;
  }
  arguments.store.descriptors = std::move(*descriptors);
  if (!open_state(arguments)) return kExitFailure;
  if (!arguments.only_store) {
    RunServiceOptions& runs = arguments.runs;
    runs.muster_version = MUSTER_VERSION;
    runs.setup.lease = to_duration(arguments.lease_seconds);
    runs.setup.keep_alive_interval = to_duration(arguments.keep_alive_seconds);
    runs.setup.dead_after = to_duration(arguments.dead_after_seconds);
    runs.forget_after = to_duration(arguments.forget_run_seconds);
    arguments.store.runs = std::move(arguments.runs);
  }
  boost::asio::io_context loop(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO);
  // Ends before the loop, to which it reports, and after the server.
  const std::shared_ptr<RunState> state = arguments.store.state;
  const SharedTokenCrypto token = arguments.store.token;
  StoreServer server(loop, std::move(arguments.store));
  ServiceManager manager(loop, [&server] { return status_of(server); });
  ConfigReload reload(loop, std::move(command_line.values), kChangeable, [&server, &words] {
    CommandLine again = read_again(words);
    return ConfigReading{std::move(again.values), std::move(again.errors),
                         [&server, arguments = std::move(again.arguments)] {
                           set_what_can_be_changed(arguments, server);
                         }};
  });
  boost::asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code& ec, int) {
    if (ec) return;
    manager.stopping();
    server.stop();
    reload.stop();
  });
  if (const auto started = server.start(); !started) {
    std::fprintf(stderr, "musterd: %s\n", started.error().what().c_str());
    return kExitFailure;
  }
  const auto http = start_http(arguments.http, token, loop, server);
  if (http && *http == nullptr) return kExitFailure;
  announce(server.endpoints().front());
  if (http) std::printf("musterd: HTTP at %s\n", (*http)->url().c_str());
  std::fflush(stdout);
  manager.ready();
  run_guarded(loop, "musterd");
  return EXIT_SUCCESS;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Serves the c10d TCPStore through which PyTorch processes find each other, and the "
      "rendezvous of jobs.",
      "musterd"};
  const std::vector<std::string> words(argv + 1, argv + argc);
  CommandLine read;
  try {
    read_command_line(app, words, read);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "musterd: %s\nTry `musterd --help`.\n", error.what());
    return kExitUsage;
  }
  for (const std::string& error : read.errors)
    std::fprintf(stderr, "musterd: %s\n", error.c_str());
  if (!read.errors.empty()) return kExitUsage;
  if (!read.config.completion.empty()) {
    std::fputs(completion_script(app, read.config.completion).c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (read.config.check) {
    std::puts("musterd: the configuration is ok");
    return EXIT_SUCCESS;
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("musterd"));
  spdlog::set_level(spdlog::level::from_str(read.arguments.log_level));
  raise_descriptor_limit();
  return serve(std::move(read), words);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  try {
    return muster::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "musterd: %s\n", error.what());
    return muster::kExitFailure;
  }
}
