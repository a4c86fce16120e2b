// The program musterctl: shows and controls the runs of a musterd, and shows the jobs of this
// machine.

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <boost/system/error_code.hpp>

#include "base/build_info.h"
#include "base/nearest_name.h"
#include "base/printable_text.h"
#include "base/system/command_help.h"
#include "base/system/first_process.h"
#include "base/system/standard_output.h"
#include "musterctl/client.h"
#include "musterctl/completion.h"
#include "musterctl/ctl_config.h"
#include "musterctl/doctor_command.h"
#include "musterctl/doctor_peer.h"
#include "musterctl/local_jobs.h"
#include "musterctl/patience.h"
#include "musterctl/rank_output.h"
#include "musterctl/run_text.h"
#include "musterctl/screen.h"
#include "rendezvous/access/http_key.h"
#include "rendezvous/access/openssl_token.h"
#include "rendezvous/tls/tls_pump.h"

namespace muster::ctl {
namespace {

// The exit codes, as docs/musterctl.1 lists them.
constexpr int kExitFailure = 1;  // The doctor has found a failure, or the command has failed.
constexpr int kExitUsage = 2;
constexpr int kExitNoAnswer = 3;  // musterd does not answer.
constexpr int kExitUnknown = 4;   // musterd does not know this run.

constexpr unsigned kWatchSeconds = 1;

struct Arguments {
  std::string endpoint = "localhost:9400";
  std::string token_file;  // Empty: no token.
  TlsFiles tls;            // Empty: plain HTTP.
  std::string run;
  std::string node;
  std::string completion;
  bool endpoint_given = false;
  bool json = false;
  bool watch = false;
  int rank = -1;  // -1: not given.
  bool follow = false;
  bool from_stderr = false;
  bool all = false;
  int lines = -1;      // -1: not given.
  std::string notice;  // Seconds. Empty: not given.
  std::string reason;
  DoctorArguments doctor;
  DoctorPeerOptions doctor_peer;
};

int complain(int code, const std::string& reason) {
  std::fprintf(stderr, "musterctl: %s\n", reason.c_str());
  return code;
}

boost::system::error_code print_error;  // Why output was lost; the first reason counts.

// Prints and flushes at once, so that a user who follows the output sees it. False: it is lost.
bool print(std::string_view text) {
  const auto error = write_to_stdout(text);
  if (!print_error) print_error = error;
  return !error;
}

// The exit code of the program if its command has ended with `code`: output that was lost is an
// error, unless the reader of stdout has gone, and so wants no more output.
int code_after_output(int code) {
  if (!print_error || print_error == boost::system::errc::broken_pipe) return code;
  complain(kExitFailure, "the output cannot be written: " + print_error.message());
  return code == EXIT_SUCCESS ? kExitFailure : code;
}

// A resource of musterd's HTTP, and the functions that format it: the second one for --watch on a
// terminal.
struct Resource {
  std::string target;
  Text (*text)(std::string_view json) = nullptr;
  Text (*watched)(std::string_view json) = nullptr;  // If there is none, the first one.
};

// Reads the configuration file, which describes one musterd, if neither the command line nor the
// environment names a musterd: another one may have no TLS, or another token. Returns false if the
// file is invalid, after printing the error.
bool apply_config(Arguments& arguments) {
  if (arguments.endpoint_given || arguments.doctor.quick) return true;
  const std::string path = find_config_file();
  if (path.empty()) return true;
  auto config = read_ctl_config(path);
  if (!config) return complain(kExitUsage, config.error().reason), false;
  const auto fill = [](std::string& value, std::string& from) {
    if (value.empty()) value = std::move(from);
  };
  if (!config->endpoint.empty()) {
    arguments.endpoint = std::move(config->endpoint);
    arguments.endpoint_given = true;
  }
  fill(arguments.token_file, config->token_file);
  fill(arguments.tls.ca, config->tls_ca);
  fill(arguments.tls.certificate, config->tls_certificate);
  fill(arguments.tls.key, config->tls_key);
  return true;
}

// The endpoint of musterd's HTTP, with its TLS. If the arguments are wrong, prints the error, sets
// `code` to the exit code and returns nothing.
std::optional<Endpoint> find_endpoint(const Arguments& arguments, int& code) {
  auto endpoint = parse_endpoint(arguments.endpoint);
  if (!endpoint) {
    code = complain(kExitUsage, endpoint.error().reason);
    return std::nullopt;
  }
  if (!arguments.tls.any()) {
    if (!arguments.endpoint.starts_with("https://")) return *endpoint;
    code = complain(kExitUsage, "https needs the CA of musterd's certificate: give --tls-ca FILE");
    return std::nullopt;
  }
  auto context = make_tls_context(TlsSide::Client, arguments.tls);
  if (!context) {
    code = complain(kExitFailure, "--tls-ca, --tls-cert, --tls-key: " + context.error().reason);
    return std::nullopt;
  }
  endpoint->tls = std::make_shared<TlsPump>(*std::move(context));
  return *endpoint;
}

// The endpoint with the token. Errors are as for find_endpoint.
std::optional<Service> find_service(const Arguments& arguments, int& code) {
  auto endpoint = find_endpoint(arguments, code);
  if (!endpoint) return std::nullopt;
  const auto token = load_token(arguments.token_file);
  if (token) return Service{*std::move(endpoint), *token};
  code = complain(kExitFailure, token.error().reason);
  return std::nullopt;
}

Screen screen_of_stdout() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

// Shows the resource once. If that fails, `problem` says why.
int show(const Arguments& arguments, const Service& service, const Resource& resource,
         std::string& problem) {
  const auto answer = get(service.endpoint, resource.target, service.token.get());
  if (!answer) return problem = answer.error().reason, kExitNoAnswer;
  if (answer->status != 200)
    return problem = error_text(*answer), answer->status == 404 ? kExitUnknown : kExitFailure;
  const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
  if (arguments.json)
    return print(on_terminal ? terminal_text(answer->body) : answer->body), EXIT_SUCCESS;
  const bool fits = arguments.watch && on_terminal;
  const auto format = fits && resource.watched != nullptr ? resource.watched : resource.text;
  const Text text = format(answer->body);
  if (!text) return problem = text.error().reason, kExitFailure;
  print(fits ? "\033[H\033[2J" + fit_screen(*text, screen_of_stdout()) : *text);
  return EXIT_SUCCESS;
}

int show_or_watch(const Arguments& arguments, const Service& service, const Resource& resource) {
  Patience patience;
  for (bool is_first = true;; is_first = false) {
    std::string problem;
    const int code = show(arguments, service, resource, problem);
    if (code == EXIT_SUCCESS) patience.answered();
    // After its restart, musterd does not know the runs before their nodes are back.
    const bool is_away = code == kExitNoAnswer || (code != EXIT_SUCCESS && patience.is_away());
    const bool waits =
        arguments.watch && !is_first && is_away && patience.lasts(std::chrono::steady_clock::now());
    if (code != EXIT_SUCCESS && !waits) return complain(code, problem);
    if (!arguments.watch || print_error) return EXIT_SUCCESS;  // See code_after_output().
    std::this_thread::sleep_until(std::chrono::steady_clock::now() +
                                  std::chrono::seconds(kWatchSeconds));
  }
}

int show_runs(const Arguments& arguments) {
  int code = EXIT_SUCCESS;
  const auto service = find_service(arguments, code);
  return service ? show_or_watch(arguments, *service, {"/api/v1/runs", runs_text}) : code;
}

int exit_code_of(const HttpAnswer& answer) {
  return complain(answer.status == 404 ? kExitUnknown : kExitFailure, error_text(answer));
}

// The run if the command line names none. If there is not exactly one run, prints the error, sets
// `code` to the exit code and returns nothing.
std::optional<std::string> find_only_run(const Arguments& arguments, const Service& service,
                                         const std::string& command, int& code) {
  const auto answer = get(service.endpoint, "/api/v1/runs", service.token.get());
  if (!answer) return code = complain(kExitNoAnswer, answer.error().reason), std::nullopt;
  if (answer->status != 200) return code = exit_code_of(*answer), std::nullopt;
  const auto only = only_run(answer->body);
  if (!only) return code = complain(kExitFailure, only.error().reason), std::nullopt;
  if (only->total == 1) return only->id;
  if (only->total == 0)
    return code = complain(kExitUnknown, "this musterd has no runs: no job has met here yet"),
           std::nullopt;
  if (const Text runs = runs_text(answer->body); runs && !arguments.json) print(*runs);
  code = complain(kExitUsage, "which of the runs? Type `musterctl " + command + " RUN`");
  return std::nullopt;
}

int show_run(const Arguments& arguments, const std::string& command, const std::string& more,
             Text (*text)(std::string_view), Text (*watched)(std::string_view) = nullptr) {
  int code = EXIT_SUCCESS;
  const auto service = find_service(arguments, code);
  if (!service) return code;
  std::optional<std::string> run = arguments.run;
  if (run->empty()) run = find_only_run(arguments, *service, command, code);
  if (!run) return code;
  return show_or_watch(arguments, *service,
                       {"/api/v1/runs/" + percent_encoded(*run) + more, text, watched});
}

// Sends a POST about the run and prints musterd's answer as `text` formats it.
int change(const Arguments& arguments, const std::string& more,
           const std::function<Text(std::string_view json)>& text) {
  int code = EXIT_SUCCESS;
  const auto service = find_service(arguments, code);
  if (!service) return code;
  const std::string target = "/api/v1/runs/" + percent_encoded(arguments.run) + more;
  const auto answer = post(service->endpoint, target, service->token.get());
  if (!answer) return complain(kExitNoAnswer, answer.error().reason);
  if (answer->status != 200) return exit_code_of(*answer);
  const Text done = text(answer->body);
  if (!done) return complain(kExitFailure, done.error().reason);
  return print(*done), EXIT_SUCCESS;
}

int change_run(const Arguments& arguments, const std::string& action, const std::string& done) {
  const std::string line = safe(arguments.run) + ": " + done + "\n";
  return change(arguments, "/" + action,
                [&](std::string_view) { return Text(boost::system::in_place_value, line); });
}

int change_node(const Arguments& arguments, const std::string& action, const std::string& done) {
  const std::string begin = safe(arguments.run) + ": " + safe(arguments.node) + ": " + done;
  return change(arguments, "/nodes/" + percent_encoded(arguments.node) + "/" + action,
                [&](std::string_view json) { return done_text(begin, json); });
}

int drain_node(const Arguments& arguments) {
  if (arguments.notice.empty() && !arguments.reason.empty())
    return complain(kExitUsage, "--reason is the reason of a notice: give --notice SECONDS, too");
  if (arguments.notice.empty()) return change_node(arguments, "drain", "drained; ");
  std::string action = "drain?notice=" + arguments.notice;
  if (!arguments.reason.empty()) action += "&reason=" + percent_encoded(arguments.reason);
  return change_node(arguments, action, "drained, with a notice; ");
}

// Prints a link and starts no browser: a browser on this machine might not be the user's.
constexpr unsigned kStatusNoToken = 409;  // What musterd answers to a login if it has no token.

int print_link(const Arguments& arguments) {
  int code = EXIT_SUCCESS;
  const auto service = find_service(arguments, code);
  if (!service) return code;
  const auto answer = post(service->endpoint, "/api/v1/login", service->token.get());
  if (!answer) return complain(kExitNoAnswer, answer.error().reason);
  const std::string page =
      (service->endpoint.tls ? "https://" : "http://") + service->endpoint.text();
  if (answer->status == kStatusNoToken) {
    std::fprintf(stderr, "musterctl: this musterd has no token: the page asks for no login\n");
    print(page + "/\n");
    return EXIT_SUCCESS;
  }
  if (answer->status != 200) return exit_code_of(*answer);
  const Text path = login_path(answer->body);
  if (!path) return complain(kExitFailure, path.error().reason);
  std::fprintf(stderr, "musterctl: open this within a minute; it works once\n");
  print(page + *path + "\n");
  return EXIT_SUCCESS;
}

int print_key(const Arguments& arguments) {
  if (arguments.token_file.empty())
    return complain(kExitUsage,
                    "the key is made of the token: give --rdzv-token-file FILE or "
                    "MUSTER_RDZV_TOKEN_FILE");
  const auto token = load_token(arguments.token_file);
  if (!token) return complain(kExitFailure, token.error().reason);
  print(http_read_key(**token) + "\n");
  return EXIT_SUCCESS;
}

int show_rank_output(const Arguments& arguments,
                     const std::function<OutputEnd(const Service&)>& show) {
  int code = EXIT_SUCCESS;
  const auto service = find_service(arguments, code);
  if (!service) return code;
  const OutputEnd end = show(*service);
  return end.exit_code == 0 ? EXIT_SUCCESS : complain(end.exit_code, end.reason);
}

int show_logs(const Arguments& arguments) {
  const OutputRequest request{
      .run = arguments.run,
      .rank = arguments.rank,
      .from_stderr = arguments.from_stderr,
      .all = arguments.all,
      .lines = arguments.lines < 0 ? std::nullopt : std::optional<int>(arguments.lines),
      .follow = arguments.follow,
      .on_terminal = ::isatty(STDOUT_FILENO) == 1};
  return show_rank_output(
      arguments, [&](const Service& service) { return show_output(service, request, print); });
}

int show_worker_stacks(const Arguments& arguments) {
  return show_rank_output(arguments, [&](const Service& service) {
    return arguments.rank < 0 ? show_all_stacks(service, arguments.run, print)
                              : show_stacks(service, arguments.run, arguments.rank, print);
  });
}

int run_doctor_command(const Arguments& arguments) {
  DoctorContext context{
      .token_file = arguments.token_file, .tls = arguments.tls, .json = arguments.json};
  if (::isatty(STDOUT_FILENO) == 1) context.columns = screen_of_stdout().columns;
  int code = EXIT_SUCCESS;
  if (arguments.endpoint_given && !arguments.doctor.quick) {
    context.musterd = find_endpoint(arguments, code);
    if (!context.musterd) return code;
  }
  const auto token = load_token(arguments.token_file);
  if (!token) return complain(kExitFailure, token.error().reason);
  context.token = *token;
  const DoctorAnswer answer = run_doctor(arguments.doctor, context);
  if (!answer.usage_error.empty()) return complain(kExitUsage, answer.usage_error);
  print(answer.text);
  return answer.ok ? EXIT_SUCCESS : kExitFailure;
}

int list_local_jobs(const Arguments& arguments) {
  const LocalJobs jobs = find_local_jobs();
  print(arguments.json ? local_jobs_json(jobs) : local_jobs_text(jobs));
  return EXIT_SUCCESS;
}

// The runs, or the nodes of a run, for the completion scripts. An error is not printed: it would
// stand in the line that the user types.
int print_completion_words(const Arguments& arguments) {
  int code = EXIT_SUCCESS;
  const auto service = find_service(arguments, code);
  if (!service) return code;
  const std::string target =
      "/api/v1/runs" +
      (arguments.run.empty() ? "" : "/" + percent_encoded(arguments.run) + "/nodes");
  const auto answer = get(service->endpoint, target, service->token.get());
  if (!answer || answer->status != 200) return kExitNoAnswer;
  const Text words = arguments.run.empty() ? run_words(answer->body) : node_words(answer->body);
  if (!words) return kExitFailure;
  return print(*words), EXIT_SUCCESS;
}

using Action = std::function<int()>;

// Used instead of CLI11's check, whose message names the largest floating-point number as the
// limit.
std::string whole_rank(const std::string& text) {
  int rank = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && rank >= 0) return {};
  return "'" + safe(text.substr(0, 64)) +
         "' is no rank: give a whole number from 0 on, as `musterctl nodes` shows under RANKS";
}

std::string whole_lines_number(const std::string& text) {
  int lines = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), lines);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && lines >= 0) return {};
  return "'" + safe(text.substr(0, 64)) + "' is no number of lines: give a whole number from 0 on";
}

std::string notice_seconds(const std::string& text) {
  std::int64_t seconds = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && seconds > 0) return {};
  return "'" + safe(text.substr(0, 64)) + "' is no time: give a whole number of seconds from 1 on";
}

void add_option(CLI::App& command, std::string_view option, Arguments& arguments) {
  if (option == "--endpoint")
    command
        .add_option_function<std::string>(
            "--endpoint",
            [&arguments](const std::string& text) {
              arguments.endpoint = text;
              arguments.endpoint_given = true;
            },
            "Address of musterd's HTTP (musterd --http); without this option and its variable, the "
            "one in the configuration file [MUSTER_ENDPOINT]")
        ->type_name("HOST:PORT")
        ->default_str(arguments.endpoint);
  if (option == "--rdzv-token-file")
    command
        .add_option("--rdzv-token-file", arguments.token_file,
                    "File with the token of musterd [MUSTER_RDZV_TOKEN_FILE]")
        ->type_name("FILE");
  const auto file = [&](const char* name, std::string& value, const char* text) {
    if (option != name) return;
    command.add_option(name, value, text)->type_name("FILE");
    // As muster spells it, whose files of the same job these are. Not in the help, as it is the
    // same.
    const std::string as_muster = "--rdzv-" + std::string(name).substr(2);
    command.add_option(as_muster, value)->type_name("FILE")->group("");
  };
  file("--tls-ca", arguments.tls.ca,
       "Ask by HTTPS, a musterd with a certificate of this CA [MUSTER_TLS_CA, or "
       "MUSTER_RDZV_TLS_CA]");
  file("--tls-cert", arguments.tls.certificate,
       "Certificate for a musterd that asks for one [MUSTER_TLS_CERT, or MUSTER_RDZV_TLS_CERT]");
  file("--tls-key", arguments.tls.key, "Its key [MUSTER_TLS_KEY, or MUSTER_RDZV_TLS_KEY]");
  if (option == "--json") command.add_flag("--json", arguments.json, "For programs");
  if (option == "--watch")
    command.add_flag("--watch", arguments.watch, "Look again each second, until it is stopped");
  if (option == "--follow")
    command.add_flag("-f,--follow", arguments.follow, "Go on as the worker writes more");
  if (option == "--stderr")
    command.add_flag("--stderr", arguments.from_stderr, "What it writes to stderr, not stdout");
  if (option == "--notice")
    command
        .add_option("--notice", arguments.notice,
                    "The node goes in so many seconds: all nodes of its round are told, so that "
                    "their workers save; then the round ends")
        ->check(notice_seconds, "")
        ->type_name("SECONDS");
  if (option == "--reason")
    command.add_option("--reason", arguments.reason, "Why it goes, for the workers and for people")
        ->type_name("TEXT");
  if (option == "--all")
    command.add_flag("--all", arguments.all, "From the beginning of the log, not its end only");
  if (option == "--tail")
    command
        .add_option("-n,--tail", arguments.lines,
                    "Only this many lines of its end, and with -f what follows")
        ->check(whole_lines_number, "")
        ->type_name("LINES");
  add_doctor_option(command, option, arguments.doctor);
}

void add_commands(CLI::App& app, Arguments& arguments, Action& chosen) {
  const std::map<std::string_view, Action> actions = {
      {"runs", [&] { return show_runs(arguments); }},
      {"status",
       [&] { return show_run(arguments, "status", "", status_text, watched_status_text); }},
      {"nodes", [&] { return show_run(arguments, "nodes", "/nodes", nodes_text); }},
      {"why", [&] { return show_run(arguments, "why", "", why_text); }},
      {"logs", [&] { return show_logs(arguments); }},
      {"stacks", [&] { return show_worker_stacks(arguments); }},
      {"restart",
       [&] {
         return change_run(arguments, "restart", "its nodes stop their workers and meet again");
       }},
      {"stop",
       [&] { return change_run(arguments, "stop", "it has ended, and its nodes are told"); }},
      {"drain", [&] { return drain_node(arguments); }},
      {"exclude", [&] { return change_node(arguments, "exclude", "excluded; "); }},
      {"allow", [&] { return change_node(arguments, "allow", ""); }},
      {"open", [&] { return print_link(arguments); }},
      {"key", [&] { return print_key(arguments); }},
      {"ps", [&] { return list_local_jobs(arguments); }},
      {"doctor", [&] { return run_doctor_command(arguments); }}};
  for (const Subcommand& subcommand : kSubcommands) {
    CLI::App& command =
        *app.add_subcommand(std::string(subcommand.name), std::string(subcommand.help));
    const bool only_run = subcommand.arguments == "[RUN]";
    if (!subcommand.arguments.empty())
      command
          .add_option("RUN", arguments.run,
                      only_run
                          ? "The run's id (--rdzv-id); may be left out if there is one run only"
                          : "The run's id (--rdzv-id)")
          ->required(!only_run);
    if (subcommand.arguments.find("NODE") != std::string_view::npos)
      command
          .add_option("NODE", arguments.node,
                      "A node's name, or a host's address: then all nodes of that host. `musterctl "
                      "nodes` shows both")
          ->required();
    if (subcommand.arguments.find("RANK") != std::string_view::npos)
      command.add_option("RANK", arguments.rank, "The worker's global rank")
          ->check(whole_rank, "")
          ->required(subcommand.arguments.find('[') == std::string_view::npos);
    const std::string options = options_of(subcommand);
    std::string_view rest = options;
    while (!rest.empty()) {
      const std::string_view option = rest.substr(0, rest.find(' '));
      rest.remove_prefix(option.size() + (option.size() < rest.size() ? 1 : 0));
      add_option(command, option, arguments);
    }
    if (const auto found = actions.find(subcommand.name); found != actions.end())
      command.callback([&chosen, action = found->second] { chosen = action; });
  }
  CLI::App& words = *app.add_subcommand(std::string(kCompletionWords))->group("");
  words.add_option("RUN", arguments.run);
  words.callback([&] { chosen = [&] { return print_completion_words(arguments); }; });
  add_doctor_peer(app, arguments.doctor_peer).callback([&] {
    chosen = [&] { return run_doctor_peer(arguments.doctor_peer); };
  });
}

constexpr std::size_t kShownWordBytes = 64;

/// What is wrong with the first word that is no command, option or argument. `otherwise`: the
/// parser's own sentence.
std::string unknown_word(const CLI::App& app, const std::string& otherwise) {
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  if (words.empty()) return otherwise;
  const std::string word = words.front().substr(0, words.front().find('='));
  const std::vector<CLI::App*> commands = app.get_subcommands();  // Those that were given.
  const bool is_option = word.starts_with('-');
  if (!is_option && !commands.empty())
    return printable_text(word, kShownWordBytes) + " is one argument too many for " +
           commands.front()->get_name();
  std::vector<std::string> names;
  if (is_option) {
    for (const CLI::App* each : {&app, commands.empty() ? &app : commands.front()})
      for (const CLI::Option* option : each->get_options())
        for (const std::string& name : option->get_lnames())
          names.push_back("--" + name);
  } else {
    for (const Subcommand& each : kSubcommands)
      names.emplace_back(each.name);
  }
  return std::string("there is no ") + (is_option ? "option " : "command ") +
         printable_text(word, kShownWordBytes) +
         did_you_mean(word, std::vector<std::string_view>(names.begin(), names.end()));
}

int run(int argc, char** argv) {
  CLI::App app{
      "  musterctl why job7            # what failed first\n"
      "  musterctl logs job7 3 -f      # what its rank 3 writes\n"
      "\n"
      "Shows what goes on in the runs of a musterd, and in the jobs of this machine. `musterctl "
      "COMMAND --help` has the options of a command. [NAME, default VALUE] behind an option: the "
      "variable that stands for it, and its default. More: man musterctl.",
      "musterctl"};
  app.formatter(std::make_shared<CommandHelp>());
  app.set_help_flag("-h,--help", "Print this text");
  std::string version = build_text("musterctl");
  version.pop_back();  // CLI11 adds the line feed.
  app.set_version_flag("--version", version, "Print musterctl's version");
  Arguments arguments;
  // Not by CLI11's own variables: those would also set options of commands that were not chosen.
  if (const char* endpoint = std::getenv("MUSTER_ENDPOINT"); endpoint != nullptr && *endpoint) {
    arguments.endpoint = endpoint;
    arguments.endpoint_given = true;
  }
  const auto from_variable = [](const char* name, std::string& file) {
    if (const char* value = std::getenv(name); value != nullptr) file = value;
  };
  from_variable("MUSTER_RDZV_TOKEN_FILE", arguments.token_file);
  from_variable("MUSTER_RDZV_TLS_CA", arguments.tls.ca);
  from_variable("MUSTER_RDZV_TLS_CERT", arguments.tls.certificate);
  from_variable("MUSTER_RDZV_TLS_KEY", arguments.tls.key);
  from_variable("MUSTER_TLS_CA", arguments.tls.ca);
  from_variable("MUSTER_TLS_CERT", arguments.tls.certificate);
  from_variable("MUSTER_TLS_KEY", arguments.tls.key);
  app.add_option("--completion", arguments.completion, "Print the completion script of a shell")
      ->type_name("SHELL")
      ->check(one_of({"bash", "zsh", "fish", "tcsh"}));
  for (const char* option :
       {"--endpoint", "--rdzv-token-file", "--tls-ca", "--tls-cert", "--tls-key"})
    add_option(app, option, arguments);  // These options may also stand before the command.
  Action chosen;
  add_commands(app, arguments, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    std::ostringstream text;
    const int code = app.exit(wanted, text, text);
    print(text.str());
    return code;
  } catch (const CLI::ExtrasError& error) {
    return complain(kExitUsage, unknown_word(app, error.what()) + "\nTry `musterctl --help`.");
  } catch (const CLI::ParseError& error) {
    return complain(kExitUsage, std::string(error.what()) + "\nTry `musterctl --help`.");
  }
  if (!arguments.completion.empty()) {
    print(completion_script(arguments.completion));
    return EXIT_SUCCESS;
  }
  if (!chosen) {
    std::fputs(app.help().c_str(), stderr);
    return complain(kExitUsage, "no command is given");
  }
  // ps and doctor-peer connect to no musterd: an invalid file must not stop them.
  const bool asks = !app.got_subcommand("ps") && !app.got_subcommand("doctor-peer");
  if (asks && !apply_config(arguments)) return kExitUsage;
  return chosen();
}

/// `docker run IMAGE musterctl status --watch` ends at ctrl-C.
[[gnu::constructor(101)]] void prepare_first_process() {
  end_by_signals_as_first_process();
}

}  // namespace
}  // namespace muster::ctl

int main(int argc, char** argv) {
  try {
    return muster::ctl::code_after_output(muster::ctl::run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "musterctl: %s\n", error.what());
    return 1;
  }
}
