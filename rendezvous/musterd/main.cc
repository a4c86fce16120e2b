// musterd: a server program for the store and the rendezvous of any number of runs.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/asio/io_context.hpp>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include "base/build_info.h"
#include "base/nearest_name.h"
#include "base/net/guarded_loop.h"
#include "base/printable_text.h"
#include "base/system/command_help.h"
#include "base/system/console_log_sink.h"
#include "base/system/first_process.h"
#include "base/system/log_line.h"
#include "base/system/refused_call.h"
#include "base/system/standard_output.h"
#include "rendezvous/access/openssl_token.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/musterd/leadership.h"
#include "rendezvous/musterd/musterd_config.h"
#include "rendezvous/musterd/musterd_options.h"
#include "rendezvous/musterd/musterd_process.h"
#include "rendezvous/musterd/service_manager.h"
#include "rendezvous/musterd/stop_signals.h"
#include "rendezvous/server/store_server.h"
#include "rendezvous/state/etcd/etcd_address.h"
#include "rendezvous/state/etcd/etcd_login.h"
#include "rendezvous/tls/tls_socket.h"
#if MUSTER_SQLITE
#include "rendezvous/state/sqlite/sqlite_state.h"
#endif

namespace muster {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

// Prints one line to stdout for the process that started musterd and waits until it listens. All
// other output goes to stderr.
void announce(const boost::asio::ip::tcp::endpoint& endpoint) {
  std::printf("musterd: listening on %s\n", to_text(endpoint).c_str());
  std::fflush(stdout);
}

using HttpServing = std::optional<std::unique_ptr<http::HttpServer>>;  // Empty: HTTP is off.

void announce(const HttpServing& http) {
  if (http) std::printf("musterd: HTTP at %s\n", (*http)->url().c_str());
  std::fflush(stdout);
}

// The status line that `systemctl status` shows.
std::string status_of(const StoreServer& server) {
  const StoreServerStats stats = server.stats();
  const auto endpoints = server.endpoints();
  if (endpoints.empty()) return "stopped: another musterd may lead";
  std::string text = fmt::format("listening on {}, {} connections, {} keys",
                                 to_text(endpoints.front()), stats.connections, stats.keys);
  if (!stats.state_problem.empty())
    text += "; THE STATE IS NOT RECORDED, new runs are refused: " + stats.state_problem;
  return text;
}

// The state folder: the one of --state-dir, or the first one that systemd gives the service
// (StateDirectory=). Empty: none.
std::string state_folder(const Arguments& arguments) {
  if (!arguments.state_dir.empty() || arguments.only_store) return arguments.state_dir;
  if (!arguments.state.empty()) return {};
  const char* given = std::getenv("STATE_DIRECTORY");
  const std::string_view folders = given == nullptr ? "" : given;
  return std::string(folders.substr(0, folders.find(':')));
}

// Opens the state in the state folder, if there is one. Returns whether musterd may start.
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

// Starts the HTTP server. Returns an empty value if HTTP is off, and null after a failure, which is
// printed.
HttpServing start_http(const std::string& address, http::HttpDoor door,
                       boost::asio::io_context& loop, const http::FindSource& source) {
  if (address.empty()) return std::nullopt;
  const auto parsed = http::parse_address(address);
  if (!parsed) return nullptr;
  auto started = http::HttpServer::start(*parsed, std::move(door), loop, source);
  if (started) return std::move(*started);
  std::fprintf(stderr, "musterd: --http: %s\n", started.error().what().c_str());
  return nullptr;
}

/// The value for the log line "access".
const char* tls_text(const TlsFiles& files) {
  if (!files.any()) return "no";
  return files.ca.empty() ? "yes" : "client-certificates";
}

// Sets up TLS to etcd, if it is configured. Returns an empty text, or an error as a sentence.
std::string load_state_tls(Arguments& arguments, SharedTls& to) {
  if (arguments.state.empty()) return {};
  arguments.state_tls = etcd_tls_files(std::move(arguments.state_tls));
  if (!arguments.state_tls.any()) return {};
  auto context = make_tls_context(TlsSide::Client, arguments.state_tls);
  if (!context) return "--state-ca, --state-cert and --state-key: " + context.error().reason;
  to = make_tls_client(*std::move(context));
  return {};
}

// Sets up access control: the token, TLS and the rule of the c10d door. Returns an empty text, or
// an error as a sentence.
std::string load_access(Arguments& arguments, SharedTls& state_tls) {
  auto token = load_token(arguments.token_file);
  if (!token) return token.error().reason;
  const bool has_token = *token != nullptr;
  if (std::string wrong = read_run_tokens(arguments); !wrong.empty()) return wrong;
  if (arguments.tls.any()) {
    auto context = make_tls_context(TlsSide::Server, arguments.tls);
    if (!context) return context.error().reason;
    arguments.store.tls = make_tls_server(*std::move(context));
    // Created also without rules, because a reload may add some.
    arguments.store.tls_rules = std::make_shared<TlsRules>(arguments.tls_allow);
  }
  if (std::string wrong = load_state_tls(arguments, state_tls); !wrong.empty()) return wrong;
  const std::optional<C10dAllow>& c10d_allow = arguments.store.c10d_allow;
  const std::size_t rules = arguments.tls_allow_rules.size();
  spdlog::info("access token={} tls={} c10d_allow={}{}{}", has_token ? "yes" : "no",
               tls_text(arguments.tls), c10d_allow ? c10d_allow->text : "any",
               rules == 0 ? std::string() : " tls_allow=" + std::to_string(rules),
               nodes_prove(arguments) ? ""
                                      : " advice=\"whoever reaches the port can join and end jobs; "
                                        "--rdzv-token-file asks for a token\"");
  arguments.store.token = *std::move(token);
  return {};
}

/// Called at SIGHUP: later connections use the certificates that the files contain now.
void reload_tls(TlsPump& tls, const TlsFiles& files) {
  auto context = make_tls_context(tls.context()->side(), files);
  if (!context) {
    spdlog::error("tls_not_reloaded reason=\"{}\" advice=\"the certificates from before stay\"",
                  printable_text(context.error().reason));
    return;
  }
  tls.renew(*std::move(context));
  if (files.certificate.empty())
    spdlog::info("tls_reloaded ca={}", printable_text(files.ca));
  else
    spdlog::info("tls_reloaded cert={}", printable_text(files.certificate));
}

// The options for the state in etcd. Returns std::nullopt if there is no valid login, after
// printing the reason.
std::optional<EtcdStateOptions> etcd_options(const Arguments& arguments, SharedTls tls) {
  EtcdAddress etcd = *parse_etcd_address(arguments.state);
  auto login =
      load_etcd_login(etcd.login.user, arguments.state_password_file, "--state-password-file");
  if (!login) {
    std::fprintf(stderr, "musterd: %s\n", login.error().reason.c_str());
    return std::nullopt;
  }
  etcd.login = *std::move(login);
  return EtcdStateOptions{.etcd = std::move(etcd),
                          .tls = std::move(tls),
                          .name = process_text(),
                          .lease_seconds = arguments.leader_lease_seconds,
                          .history = arguments.runs.history};
}

int serve(MusterdCommandLine command_line, const std::vector<std::string>& words, char** argv) {
  Arguments& arguments = command_line.arguments;
  SharedTls state_tls;  // For connections to etcd. Null: plain TCP.
  if (const std::string wrong = load_access(arguments, state_tls); !wrong.empty()) {
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
  if (!arguments.state.empty() && !descriptors->empty()) {
    std::fprintf(stderr,
                 "musterd: --state: a musterd that stands by must not listen, and the service "
                 "manager has given it a listening socket; disable musterd.socket, and use --bind "
                 "and --port\n");
    return kExitFailure;
  }
  arguments.store.descriptors = std::move(*descriptors);
  if (!open_state(arguments)) return kExitFailure;
  if (!arguments.only_store) {
    RunServiceOptions& runs = arguments.runs;
    runs.muster_version = MUSTER_VERSION;
    runs.runs_per_peer = runs_for_one_peer(runs.runs);
    runs.setup.lease = to_duration(arguments.lease_seconds);
    runs.setup.keep_alive_interval = to_duration(arguments.keep_alive_seconds);
    runs.setup.dead_after = to_duration(arguments.dead_after_seconds);
    runs.forget_after = to_duration(arguments.forget_run_seconds);
    runs.kept_ended_runs = runs.history;
    arguments.store.runs = std::move(arguments.runs);
  }
  boost::asio::io_context loop(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO);
  const SharedTls tls = arguments.store.tls;
  const SharedTlsRules tls_rules = arguments.store.tls_rules;
  http::HttpDoor door{.token = arguments.store.token, .tls = tls, .tls_rules = tls_rules};
  // Declared here because both report to the loop and must end before it, but after the server.
  std::unique_ptr<Leadership> leadership;
  std::shared_ptr<RunState> state = arguments.store.state;
  std::unique_ptr<StoreServer> serving;  // Null while this musterd stands by.
  std::optional<Arguments> reloaded;     // The options of a reload while this musterd stands by.
  ServiceManager manager(loop,
                         [&] { return serving ? status_of(*serving) : leadership->standing_by(); });
  const TlsFiles tls_files = arguments.tls;
  const TlsFiles state_tls_files = arguments.state_tls;
  const std::string run_tokens_file = arguments.run_tokens_file;
  ConfigReload reload(loop, std::move(command_line.values), kChangeable, [&] {
    MusterdCommandLine again = read_again(words, run_tokens_file);
    // Without a configuration file, only the files that the options name are read again.
    if (again.config.file.empty() && !tls && !state_tls && run_tokens_file.empty())
      again.errors.emplace_back("no --config was given");
    if (again.errors.empty()) {  // Otherwise a reload changes nothing.
      if (tls) reload_tls(*tls, tls_files);
      if (state_tls) reload_tls(*state_tls, state_tls_files);
    }
    return ConfigReading{std::move(again.values), std::move(again.errors),
                         [&, changed = std::move(again.arguments)] {
                           if (tls_rules) tls_rules->set(changed.tls_allow);
                           apply_changeable_options(changed, serving.get());
                           if (!serving) reloaded = changed;
                         }};
  });
  HttpServing http;  // Must end before the objects that it shows.
  const std::uint16_t wanted_port = arguments.store.port;
  const auto serve_http = [&] {
    door.nodes_port = serving ? serving->endpoints().front().port() : wanted_port;
    http = start_http(arguments.http, std::move(door), loop, [&] {
      return serving ? http::HttpSource{.store = serving.get()}
                     : http::HttpSource{.standing_by = leadership->standing_by()};
    });
    return !http || *http != nullptr;
  };
  const StopSignals signals(loop, [&] {
    manager.stopping();
    reload.stop();
    if (leadership) leadership->stopping();
    serving ? serving->stop() : loop.stop();
  });
  if (!arguments.state.empty()) {
    auto options = etcd_options(arguments, state_tls);
    if (!options) return kExitFailure;
    leadership = std::make_unique<Leadership>(loop, *std::move(options), argv);
    if (!serve_http()) return kExitFailure;  // Monitors also check musterds that stand by.
    announce(http);
    manager.ready();
    const auto end = leadership->stand_by();
    if (end != Leadership::End::Leads)
      return end == Leadership::End::Stopped ? EXIT_SUCCESS : kExitFailure;
    arguments.store.state = leadership->state();
  }
  serving = std::make_unique<StoreServer>(loop, std::move(arguments.store));
  StoreServer& server = *serving;
  if (reloaded) apply_changeable_options(*reloaded, &server);
  if (const auto started = server.start(); !started) {
    std::fprintf(stderr, "musterd: %s\n", started.error().what().c_str());
    return kExitFailure;
  }
  if (!leadership && !serve_http()) return kExitFailure;
  announce(server.endpoints().front());
  if (!leadership) announce(http);
  manager.ready();
  run_guarded(loop, "musterd");
  return EXIT_SUCCESS;
}

void begin_log(const std::string& level) {
  auto logger =
      std::make_shared<spdlog::logger>("musterd", std::make_shared<ConsoleLogSink>(STDERR_FILENO));
  logger->set_pattern(kLogLinePattern);
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(spdlog::level::from_str(level));
}

// Returns the exit code.
int print(const std::string& text) {
  return print_all("musterd", text);
}

/// These actions stay until StopSignals has blocked the signals: slow storage may take long.
[[gnu::constructor(101)]] void prepare_first_process() {
  end_by_signals_as_first_process();
}

/// What is wrong with the first word that is no option. `otherwise`: the parser's own sentence.
std::string unknown_word(const CLI::App& app, const std::string& otherwise) {
  constexpr std::size_t kShownBytes = 64;
  const std::vector<std::string> words = app.remaining();
  if (words.empty() || !words.front().starts_with('-')) return otherwise;
  const std::string word = words.front().substr(0, words.front().find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  return "there is no option " + printable_text(word, kShownBytes) +
         did_you_mean(word, std::vector<std::string_view>(names.begin(), names.end()));
}

int run(int argc, char** argv) {
  CLI::App app{
      "  musterd --http=9400                      # page and metrics at port 9400\n"
      "  musterd --http=9400 --state-dir=FOLDER   # and the runs survive its restart\n"
      "\n"
      "Hosts the rendezvous of jobs, and is the TCPStore through which PyTorch's processes find "
      "each other. [NAME, default VALUE] behind an option: the variable that stands for it, and "
      "its default. More: man musterd.",
      "musterd"};
  app.set_help_flag("-h,--help", "Print this text");
  app.formatter(std::make_shared<CommandHelp>());
  hold_back_reloads();
  const std::vector<std::string> words(argv + 1, argv + argc);
  MusterdCommandLine read;
  try {
    read_command_line(app, words, read);
  } catch (const CLI::Success& wanted) {  // --help, --version
    std::ostringstream text;
    const int code = app.exit(wanted, text, text);
    return code == EXIT_SUCCESS ? print(text.str()) : code;
  } catch (const CLI::ExtrasError& error) {
    std::fprintf(stderr, "musterd: %s\nTry `musterd --help`.\n",
                 unknown_word(app, error.what()).c_str());
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "musterd: %s\nTry `musterd --help`.\n", error.what());
    return kExitUsage;
  }
  for (const std::string& error : read.errors)
    std::fprintf(stderr, "musterd: %s\n", error.c_str());
  if (!read.errors.empty()) return kExitUsage;
  if (!read.config.completion.empty()) return print(completion_script(app, read.config.completion));
  if (read.config.check) return print("musterd: the configuration is ok\n");
  if (const auto refused = refused_call()) {
    std::fprintf(stderr, "musterd: %s\n", refused->text().c_str());
    return kExitFailure;
  }
  begin_log(read.arguments.log_level);
  raise_descriptor_limit();
  const int code = serve(std::move(read), words, argv);
  spdlog::default_logger()->flush();
  return code;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::prepare_process();
  try {
    return muster::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "musterd: %s\n", error.what());
    return muster::kExitFailure;
  }
}
