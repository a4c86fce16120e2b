// The texts that muster prints about itself, and the table of options.
#include "launcher/help.h"

#include <fstream>
#include <set>
#include <sstream>

#include <catch2/catch.hpp>

#include "base/python_text.h"
#include "launcher/plan_text.h"
#include "rendezvous/access/tls_allow.h"

namespace muster::testing {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

TEST_CASE("option table: names, variables and defaults fit together", "[unit][launcher]") {
  std::set<std::string_view> names;
  for (const Option& option : all_options()) {
    INFO(option.long_name());
    CHECK(option.long_name().starts_with("--"));
    for (const std::string_view name : option.names)
      if (!name.empty()) CHECK(names.insert(name).second);
    std::string dest(option.long_name().substr(2));
    const bool has_dash = dest.find('-') != std::string::npos;
    for (char& c : dest)
      c = c == '-' ? '_' : c;
    // Only muster's own options that print something have no second spelling.
    if (has_dash && !option.ends_muster()) CHECK(option.names[1] == "--" + dest);
    if (!option.environment.empty()) {
      std::string variable = option.origin == OptionOrigin::Torchrun ? "PET_" : "MUSTER_";
      for (const char c : dest)
        variable += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
      CHECK(option.environment == variable);
    }
    CHECK(option.takes_value() == !option.metavar.empty());
    CHECK(option.help.ends_with('.'));
  }
}

TEST_CASE("help: every option, within the terminal's width", "[unit][launcher]") {
  for (const int columns : {40, 60, 80, 120}) {
    const std::string text = help_text({.shown = "torchrun", .launch_module = false}, columns);
    CHECK(text.starts_with("usage: torchrun [options] training_script"));
    for (const Option& option : all_options()) {
      if (!is_known(option, false) || option.is_hidden) continue;
      CHECK_THAT(text, Contains(std::string(option.long_name())));
      if (!option.environment.empty()) CHECK_THAT(text, Contains(std::string(option.environment)));
    }
    if (columns < 80) continue;  // Some words are too long for less.
    for (const std::string_view line : split(text, '\n'))
      CHECK(line.size() <= static_cast<std::size_t>(columns));
  }
  CHECK_THAT(help_text({.shown = "muster-launch", .launch_module = true}, 80),
             Contains("--use-env"));
  const std::string help = help_text({.shown = "muster", .launch_module = false}, 80);
  CHECK_THAT(help, !Contains("--use-env"));
  CHECK_THAT(help, !Contains("--on-agent-death"));
  // What people type first; what is there for torchrun's sake last.
  CHECK_THAT(help, StartsWith("usage: muster [options] training_script [arguments of the script "
                              "...]\n\n  muster --standalone --nproc-per-node=8 train.py"));
  CHECK(help.find("\n  --standalone") < help.find("\nWhat is run:\n"));
  CHECK(help.find("\n  --monitor-interval") > help.find("\nAccepted for torchrun's sake:\n"));
  CHECK(help.find("\nAccepted for") > help.find("\n  --version"));
}

TEST_CASE("help: usage errors have argparse's form", "[unit][launcher]") {
  CHECK(usage_error_text({.shown = "torchrun", .launch_module = false}, {"what"}) ==
        "usage: torchrun [options] training_script [arguments of the script ...]\n"
        "torchrun: error: what\n");
  CHECK_THAT(usage_error_text({.shown = "muster", .launch_module = false}, {"what", "do this"}),
             EndsWith("\nmuster: error: what\nmuster: do this\n"));
}

TEST_CASE("help: --version prints the version first, then the sources of the build",
          "[unit][launcher]") {
  const std::string text = version_text();
  CHECK(text.starts_with("muster " MUSTER_VERSION "\n"));
  for (const char* line :
       {"\ncommit    ", "\ntarget    ", "\ncompiler  ", "\nbuilt in  Boost 1."}) {
    INFO(line);
    CHECK_THAT(text, Contains(line));
  }
  CHECK(text.ends_with("\n"));
}

TEST_CASE("completion: each shell is offered every option", "[unit][launcher]") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script(completion_script(shell));
    for (const Option& option : all_options()) {
      INFO(shell << " " << option.long_name());
      if (option.is_hidden) {
        CHECK_THAT(script, !Contains(" -l " + std::string(option.long_name().substr(2)) + " "));
        continue;
      }
      CHECK_THAT(script, Contains(std::string(option.long_name().substr(2))));
    }
  }
}

/// A file that make_texts wrote.
std::string installed_text(const std::string& path) {
  std::ifstream file(std::string(MUSTER_SHARE "/") + path);
  std::stringstream text;
  text << file.rdbuf();
  INFO(path);
  CHECK(file);
  return text.str();
}

TEST_CASE("completion: --completion prints the installed script", "[unit][launcher]") {
  CHECK(completion_script("bash") == installed_text("bash-completion/completions/muster"));
  CHECK(completion_script("zsh") == installed_text("zsh/site-functions/_muster"));
  CHECK(completion_script("fish") == installed_text("fish/vendor_completions.d/muster.fish"));
  CHECK(completion_script("tcsh") == installed_text("muster/completions/muster.csh"));
}

TEST_CASE("completion: files are offered for each option that takes a file", "[unit][launcher]") {
  const std::string bash(completion_script("bash"));
  const std::string zsh(completion_script("zsh"));
  const std::string fish(completion_script("fish"));
  const auto zsh_line = [&zsh](const std::string& name) {
    const std::size_t begin = zsh.find("'" + name + "=[");
    REQUIRE(begin != std::string::npos);
    return zsh.substr(begin, zsh.find('\n', begin) - begin);
  };
  for (const OptionField& field : std::initializer_list<OptionField>{
           &Flags::failure_report, &Flags::rdzv_token_file, &Flags::rdzv_tls_ca,
           &Flags::rdzv_tls_cert, &Flags::rdzv_tls_key}) {
    const auto& names = option(field).names;
    const std::string name(names[0]);
    CHECK_THAT(bash, Contains(name + "|" + std::string(names[1]) +
                              ") COMPREPLY=($(compgen -f -- \"$cur\"))"));
    CHECK_THAT(zsh_line(name), EndsWith("]:FILE:_files'"));
    CHECK_THAT(fish, Contains(" -l " + name.substr(2) + " -r -d "));
  }
}

TEST_CASE("man page: it has every option, as the table says", "[unit][launcher]") {
  const std::string page = installed_text("man/man1/muster.1");
  CHECK_THAT(page, StartsWith(".TH MUSTER 1 \"\" \"muster " MUSTER_VERSION "\" "));
  const auto escaped = [](std::string_view text) {
    std::string result;
    for (const char c : text)
      result += c == '-' ? std::string("\\-") : std::string(1, c);
    return result;
  };
  for (const Option& option : all_options()) {
    if (option.is_hidden) continue;
    INFO(option.long_name());
    const std::string head =
        ".B " + (option.short_name().empty() ? std::string() : escaped(option.short_name()) + ", ");
    CHECK_THAT(page, Contains(".TP\n" + head + escaped(option.long_name())));
    CHECK_THAT(page, Contains("\n" + escaped(option.help) + "\n"));
  }
}

/// The --dry-run text of a plan that can be started.
std::string shown_plan(const AgentOptions& options) {
  return dry_run_text(options, {"HOME=/home/me"});
}

TEST_CASE("dry run: of several nodes, what they agree on is not guessed", "[unit][launcher]") {
  AgentOptions options;
  options.command = {"x"};
  options.max_nodes = 2;
  const std::string text = dry_run_text(options, {}, {"--nnodes=2  (SLURM_NNODES)", "b"});
  for (const char* line :
       {"  cluster       --nnodes=2  (SLURM_NNODES)\n                b\n",
        "rank <from the rendezvous> (local rank 0)\n", "WORLD_SIZE='<from the rendezvous>'\n",
        " RANK='<from the rendezvous>'\n", "MASTER_ADDR='<from the rendezvous>'\n",
        "LOCAL_RANK=0\n"})
    CHECK_THAT(text, Contains(line));
}

TEST_CASE("dry run: the plan and each rank", "[unit][launcher]") {
  AgentOptions options;
  options.local_world_size = 2;
  options.run_id = "job7";
  options.signals_to_handle = {15, 34};
  options.log.tee = {.all = {.out = true, .err = false}, .by_local_rank = {}, .per_rank = false};
  options.log.local_ranks_filter = {0};
  options.log.dir = "/logs";
  options.role = "a b";
  options.command = {"python", "-u", "my train.py", "it's", "", "${local_rank}"};
  const std::string text = shown_plan(options);
  for (const char* line :
       {"  workers       2 on this node, role 'a b'\n", "  run id        job7\n",
        "  signals       SIGTERM SIGRTMIN\n", "rank 0 (local rank 0)\n",
        "  command       python -u 'my train.py' 'it'\\''s' '' 0\n",
        "  stdout        /logs/job7_<unique>/attempt_0/0/stdout.log, and the console\n",
        "  stderr        the console\n", "  environment   GROUP_RANK=0\n",
        "                ROLE_NAME='a b'\n", "                TORCHELASTIC_SIGNALS_TO_HANDLE=\n",
        "                RANK=1\n", "rank 1 (local rank 1)\n",
        "  stdout        /logs/job7_<unique>/attempt_0/1/stdout.log\n",
        "  stderr        nowhere (--local-ranks-filter)\n"})
    CHECK_THAT(text, Contains(line));
  CHECK_THAT(text, !Contains("HOME"));
}

TEST_CASE("dry run: variables that a flag sets for the workers", "[unit][launcher]") {
  AgentOptions options;
  options.command = {"x"};
  options.worker_environment = {{"OMP_NUM_THREADS", "4"}};
  const std::string text = dry_run_text(options, {"OMP_NUM_THREADS=1"});
  CHECK_THAT(text, Contains("OMP_NUM_THREADS=4\n"));
}

TEST_CASE("dry run: the rules for client certificates", "[unit][launcher]") {
  AgentOptions options;
  options.command = {"x"};
  options.rendezvous.tls_ca = "ca.pem";
  options.rendezvous.tls_certificate = "node.pem";
  const auto shown = [&](std::string_view names) {
    options.rendezvous.tls_allow = std::make_shared<const TlsAllow>(*parse_tls_allow_names(names));
    return shown_plan(options);
  };
  CHECK_THAT(shown_plan(options), !Contains("lets in"));
  CHECK_THAT(shown("B.example.org,*.a.org"),
             Contains("                lets in certificates of *.a.org, b.example.org\n"));
  CHECK_THAT(shown("*"), Contains("lets in every certificate of the CA\n"));
}

TEST_CASE("dry run: --run-path shows the script and not muster's program", "[unit][launcher]") {
  AgentOptions options;
  options.runs_path = true;
  options.command = {"python", "-u", "-c", "import runpy\nmany lines\n", "x.py", "--lr", "1"};
  CHECK_THAT(shown_plan(options),
             Contains("  command       python -u -c '(muster'\\''s program that runs the script)' "
                      "x.py --lr 1\n") &&
                 !Contains("runpy"));
}

}  // namespace
}  // namespace muster::testing
