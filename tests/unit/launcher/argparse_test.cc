#include "launcher/argparse.h"

#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Words = std::vector<std::string>;
using Catch::Matchers::Contains;

TEST_CASE_METHOD(PlanFixture, "argparse: both spellings, = and the next word give the value",
                 "[unit][launcher]") {
  for (const Words& words : {Words{"--max-restarts", "3", "x"}, Words{"--max_restarts", "3", "x"},
                             Words{"--max-restarts=3", "x"}, Words{"--max_restarts=3", "x"}})
    CHECK(flags(words).max_restarts == 3);
  CHECK(usage_error({"--max-restart_s", "3", "x"}) == "unrecognized arguments: --max-restart_s");
  CHECK(flags({"--nnodes", "2", "--nnodes", "3", "x"}).nnodes == "3");
}

TEST_CASE_METHOD(PlanFixture, "argparse: a prefix that fits one spelling is that option",
                 "[unit][launcher]") {
  CHECK(flags({"--nproc_per", "2", "x"}).nproc_per_node == "2");
  CHECK(flags({"--nn", "2", "x"}).nnodes == "2");
  CHECK(flags({"--t", "3", "x"}).tee == "3");
  CHECK(flags({"--standa", "x"}).standalone);
  CHECK(flags({"--local_rank=0", "x"}).local_ranks_filter == "0");
  CHECK(usage_error({"--nproc", "2", "x"}) ==
        "ambiguous option: --nproc could match --nproc-per-node, --nproc_per_node");
  CHECK_THAT(usage_error({"--=1", "x"}), Contains("ambiguous option: --=1 could match --help"));
}

TEST_CASE_METHOD(PlanFixture, "argparse: muster's own options make no abbreviation ambiguous",
                 "[unit][launcher]") {
  CHECK(std::holds_alternative<EarlyExit>(parse({"--h"})));  // Means --help, not --hang-timeout.
  CHECK_THAT(usage_error({"--s", "x"}), !Contains("--strict"));
  CHECK(flags({"--strict", "x"}).strict);
  CHECK(usage_error({"--stri", "x"}) == "unrecognized arguments: --stri");
  CHECK(usage_error({"--dry", "x"}) == "unrecognized arguments: --dry");
  CHECK(flags({"--dry_run", "x"}).dry_run);
}

TEST_CASE_METHOD(PlanFixture, "argparse: abbreviations are those of torchrun 2.15",
                 "[unit][launcher]") {
  CHECK(flags({"--log-l", "a", "x"}).log_line_prefix_template == "a");
  CHECK(flags({"--log_line=a", "x"}).log_line_prefix_template == "a");
  CHECK(flags({"--log-d", "a", "x"}).log_dir == "a");
  CHECK(usage_error({"--log-", "a", "x"}) ==
        "ambiguous option: --log- could match --log-dir, --log-line-prefix-template");
  CHECK(usage_error({"--log_", "a", "x"}) ==
        "ambiguous option: --log_ could match --log_dir, --log_line_prefix_template");
  CHECK(usage_error({"--p", "bash"}) ==
        "ambiguous option: --p could match --print-completion, --print_completion");
  CHECK(std::holds_alternative<EarlyExit>(parse({"--print-", "bash"})));
}

TEST_CASE_METHOD(PlanFixture, "argparse: several short options may stand in one word",
                 "[unit][launcher]") {
  const Flags cluster = flags({"-mr3", "x"});
  CHECK(cluster.module);
  CHECK(cluster.redirects == "3");
  CHECK(flags({"-mr", "3", "x"}).redirects == "3");
  CHECK(flags({"-rm3", "x"}).redirects == "m3");
  CHECK(flags({"-r=3", "x"}).redirects == "3");
  CHECK(flags({"-m=r3", "x"}).redirects == "3");
  CHECK(flags({"-th", "x"}).tee == "h");
  CHECK(usage_error({"-mx", "x"}) == "argument -m/--module: ignored explicit argument 'x'");
  CHECK(usage_error({"-m="}) == "argument -m/--module: ignored explicit argument ''");
}

TEST_CASE_METHOD(PlanFixture, "argparse: a switch takes no value", "[unit][launcher]") {
  CHECK(usage_error({"--standalone=1", "x"}) ==
        "argument --standalone: ignored explicit argument '1'");
  const Flags next_word = flags({"--standalone", "1", "x"});
  CHECK(next_word.script == "1");
  CHECK(next_word.script_arguments == Words{"x"});
}

TEST_CASE_METHOD(PlanFixture, "argparse: everything behind the script is the script's",
                 "[unit][launcher]") {
  const Words behind = {"--nnodes", "2", "-h", "--local", "0", "--bogus", "-m"};
  Words words = {"--role", "a", "x"};
  words.insert(words.end(), behind.begin(), behind.end());
  CHECK(flags(words).script_arguments == behind);
  CHECK(flags(words).nnodes == "1:1");
}

TEST_CASE_METHOD(PlanFixture, "argparse: one -- next to the script is dropped",
                 "[unit][launcher]") {
  struct Row {
    Words words;
    std::string script;
    Words arguments;
  };
  const std::vector<Row> rows = {
      {{"--", "x", "--nnodes", "3"}, "x", {"--nnodes", "3"}},
      {{"--", "--nnodes", "2", "x"}, "--nnodes", {"2", "x"}},
      {{"--nnodes", "2", "--", "x", "--", "y"}, "x", {"--", "y"}},
      {{"x", "--", "y"}, "x", {"y"}},
      {{"x", "--"}, "x", {}},
      {{"x", "--", "--", "y"}, "x", {"--", "y"}},
      {{"x", "a", "--", "b"}, "x", {"a", "--", "b"}},
      {{"x", "--foo", "--", "y"}, "x", {"--foo", "--", "y"}},
      {{"--", "--", "x"}, "--", {"x"}},
      {{"-", "y"}, "-", {"y"}},
      {{"", "y"}, "", {"y"}},
      {{"-1", "x"}, "-1", {"x"}},
      {{"a b"}, "a b", {}},
  };
  for (const Row& row : rows) {
    const Flags parsed = flags(row.words);
    INFO(row.script);
    CHECK(parsed.script == row.script);
    CHECK(parsed.script_arguments == row.arguments);
  }
  CHECK(usage_error({"--nnodes", "--", "2"}) == "argument --nnodes: expected one argument");
}

TEST_CASE_METHOD(PlanFixture, "argparse: values that begin with - need = or look like numbers",
                 "[unit][launcher]") {
  CHECK(flags({"--max-restarts", "-1", "x"}).max_restarts == -1);
  CHECK(flags({"--rdzv-id", "-.5", "x"}).rdzv_id == "-.5");
  CHECK(flags({"--rdzv-id", "-a b", "x"}).rdzv_id == "-a b");
  CHECK(flags({"--rdzv-id=-abc", "x"}).rdzv_id == "-abc");
  CHECK(flags({"--rdzv-id", "-", "x"}).rdzv_id == "-");
  CHECK(usage_error({"--rdzv-id", "-abc", "x"}) ==
        "argument --rdzv-id/--rdzv_id: expected one argument");
}

TEST_CASE_METHOD(PlanFixture, "argparse: unknown options and a missing script are named",
                 "[unit][launcher]") {
  CHECK(usage_error({"--bogus", "--NNODES", "2", "x"}) ==
        "unrecognized arguments: --bogus --NNODES");
  CHECK(usage_error({}) ==
        "the following arguments are required: training_script, training_script_args");
  CHECK(usage_error({"--bogus"}) ==
        "the following arguments are required: training_script, training_script_args");
}

TEST_CASE_METHOD(PlanFixture, "argparse: numbers are Python's", "[unit][launcher]") {
  CHECK(flags({"--max-restarts", " 1_0\n", "x"}).max_restarts == 10);
  CHECK(flags({"--max-restarts=+007", "x"}).max_restarts == 7);
  CHECK(flags({"--monitor-interval", "1e-3", "x"}).monitor_interval == 1e-3);
  CHECK(std::isnan(flags({"--monitor-interval", " NaN", "x"}).monitor_interval));
  CHECK(usage_error({"--max-restarts", "1.0", "x"}) ==
        "argument --max-restarts/--max_restarts: invalid int value: '1.0'");
  for (const char* bad : {"1__0", "_1", "1_", "", "0x1", "99999999999999999999"})
    CHECK_THAT(usage_error({std::string("--max-restarts=") + bad, "x"}), Contains("invalid int"));
  for (const char* bad : {"1_.0", ".", "1e", "0x1p3", "infinit"})
    CHECK_THAT(usage_error({std::string("--monitor-interval=") + bad, "x"}),
               Contains("invalid float"));
  CHECK(usage_error({"--start-method", "it's", "x"}) ==
        "argument --start-method/--start_method: invalid choice: \"it's\" (choose from 'spawn', "
        "'fork', 'forkserver')");
  CHECK(flags({"--duplicate-stdout-filters", "a,,b,c,", "x"}).duplicate_stdout_filters ==
        Words{"a,b", "c", ""});
}

TEST_CASE_METHOD(PlanFixture,
                 "argparse: variables are defaults, and the command line goes before them",
                 "[unit][launcher]") {
  environment["PET_NNODES"] = "2";
  environment["PET_MAX_RESTARTS"] = "abc";
  environment["PET_START_METHOD"] = "bogus";
  environment["PET_TEE"] = "3";
  environment["PET_T"] = "1";
  CHECK(usage_error({"x"}) ==
        "argument --max-restarts/--max_restarts: invalid int value: 'abc' (from "
        "PET_MAX_RESTARTS)");
  const Flags parsed = flags({"--max-restarts", "2", "x"});
  CHECK(parsed.nnodes == "2");
  CHECK(parsed.start_method == "bogus");  // As under torchrun, choices bind only the command line.
  CHECK(parsed.tee == "3");
  CHECK(flags({"--max-restarts", "2", "--nnodes", "4", "x"}).nnodes == "4");
}

TEST_CASE_METHOD(PlanFixture, "argparse: a switch's variable is a number or a word",
                 "[unit][launcher]") {
  for (const char* yes : {"1", "2", "-1", " 1 ", "1_0", "true", "YES", "on"}) {
    environment["PET_STANDALONE"] = yes;
    INFO(yes);
    CHECK(flags({"x"}).standalone);
  }
  for (const char* no : {"0", "00", "false", "No", "off", ""}) {
    environment["PET_STANDALONE"] = no;
    INFO(no);
    CHECK_FALSE(flags({"x"}).standalone);
    CHECK(flags({"--standalone", "x"}).standalone);
  }
  environment["PET_STANDALONE"] = "perhaps";
  CHECK_THAT(usage_error({"x"}), Contains("(from PET_STANDALONE)"));
  CHECK(flags({"--standalone", "x"}).standalone);
  CHECK(std::holds_alternative<EarlyExit>(parse({"-h"})));
}

TEST_CASE_METHOD(PlanFixture, "argparse: an empty variable is not set", "[unit][launcher]") {
  for (const char* name : {"PET_NNODES", "PET_MASTER_PORT", "PET_DUPLICATE_STDOUT_FILTERS"})
    environment[name] = "";
  const Flags parsed = flags({"x"});
  CHECK(parsed.nnodes == "1:1");
  CHECK_FALSE(parsed.master_port);
  CHECK(parsed.duplicate_stdout_filters.empty());
  CHECK(
      flags({"--nnodes", "", "x"}).nnodes.empty());  // On the command line, an empty value counts.
}

TEST_CASE_METHOD(PlanFixture,
                 "argparse: --help, --version and --completion end the parsing where they stand",
                 "[unit][launcher]") {
  const auto ends_with = [this](const Words& words) {
    const auto outcome = parse(words);
    const auto* early = std::get_if<EarlyExit>(&outcome);
    return early == nullptr ? std::string("nothing")
                            : std::string(option(early->what).long_name()) + early->value;
  };
  CHECK(ends_with({"--help"}) == "--help");
  CHECK(ends_with({"-mh", "--bogus"}) == "--help");
  CHECK(ends_with({"--version"}) == "--version");
  CHECK(ends_with({"--completion", "fish"}) == "--completionfish");
  CHECK(ends_with({"--completion", "tcsh"}) == "--completiontcsh");
  CHECK(ends_with({"--print-completion", "tcsh"}) == "--print-completiontcsh");
  CHECK(ends_with({"--print_c=zsh", "--bogus"}) == "--print-completionzsh");
  CHECK(ends_with({"x", "-h"}) == "nothing");
  CHECK_THAT(usage_error({"--max-restarts", "a", "-h"}), Contains("invalid int value"));
  CHECK_THAT(usage_error({"--completion", "sh"}),
             Contains("choose from 'bash', 'zsh', 'fish', 'tcsh'"));
  CHECK(usage_error({"--print-completion", "fish"}) ==
        "argument --print-completion/--print_completion: invalid choice: 'fish' (choose from "
        "'bash', 'zsh', 'tcsh')");
  CHECK(usage_error({"--print_completion"}) ==
        "argument --print-completion/--print_completion: expected one argument");
}

TEST_CASE_METHOD(PlanFixture, "argparse: an unknown option comes with advice", "[unit][launcher]") {
  const auto advice = [this](const Words& words) {
    return std::get<UsageError>(parse(words)).advice;
  };
  CHECK(advice({"--nporc-per-node=2", "x"}) == "did you mean --nproc-per-node?");
  CHECK(advice({"--nporc_per_node", "2", "x"}) == "did you mean --nproc-per-node?");
  CHECK(advice({"--stri", "x"}) == "did you mean --strict?");
  CHECK(advice({"--epochs", "10", "train.py"}) ==
        "options of the script go behind it: muster train.py --epochs 10");
  CHECK(advice({"--epochs=10", "train.py"}) ==
        "options of the script go behind it: muster train.py --epochs=10");
  CHECK(advice({"--resume", "--nnodes=2", "dir/train.py"}) ==
        "options of the script go behind it: muster dir/train.py --resume");
  CHECK(advice({"--epochs", "10", "-m", "train"}) ==
        "options of the script go behind it: muster training_script --epochs");
  CHECK(advice({}) == "give the script behind the options; --help lists them");
  CHECK(advice({"--max-restarts=x", "x"}).empty());
}

TEST_CASE_METHOD(PlanFixture, "plan: a launcher's options behind the script are named",
                 "[unit][launcher]") {
  const auto behind = [this](const Words& arguments) {
    Words words{"train.py"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return warnings(words);
  };
  CHECK(behind({"--nproc-per-node=4"}) ==
        Words{"--nproc-per-node stands behind the script and goes to it: options of muster stand "
              "before 'train.py'"});
  CHECK(behind({"--nproc_per_node", "4", "--rdzv-id=x"}).size() == 2);
  CHECK_THAT(error({"--strict", "train.py", "--standalone"}),
             Contains("--standalone stands behind"));
  // Names that scripts have, too; and what stands behind "--".
  CHECK(behind({"--log-dir=x", "--role", "--dry-run", "--local-rank=0", "--epochs", "nnodes"})
            .empty());
  CHECK(behind({"a", "--", "--nnodes=2"}).empty());
  CHECK(warnings({"--nproc-per-node=2", "train.py", "--nproc-per-node=4"}).empty());
}

TEST_CASE_METHOD(PlanFixture, "argparse: --use-env belongs to muster-launch", "[unit][launcher]") {
  CHECK(usage_error({"--use-env", "x"}) == "unrecognized arguments: --use-env");
  argv0 = "/opt/bin/muster-launch";
  CHECK(flags({"--use-env", "x"}).use_env);
  CHECK(flags({"--use_e", "x"}).use_env);
  environment["PET_USE_ENV"] = "1";
  CHECK_FALSE(flags({"x"}).use_env);
}

TEST_CASE_METHOD(PlanFixture, "argparse: muster's variables are checked like its options",
                 "[unit][launcher]") {
  environment["MUSTER_EXIT_CODE"] = "propagate";
  environment["MUSTER_STRICT"] = "yes";
  CHECK(flags({"x"}).exit_code == "propagate");
  CHECK(flags({"x"}).strict);
  environment["MUSTER_EXIT_CODE"] = "bogus";
  CHECK_THAT(usage_error({"x"}), Contains("(from MUSTER_EXIT_CODE)"));
}

TEST_CASE_METHOD(PlanFixture,
                 "argparse: --on-agent-death=adopt is refused with a message of its own",
                 "[unit][launcher]") {
  const std::string reason =
      "=adopt: a new agent that takes over live workers does not exist yet; kill is the only value";
  CHECK(usage_error({"--on-agent-death=adopt", "x"}) == "--on-agent-death" + reason);
  CHECK(usage_error({"--on-agent-death", "adopt", "x"}) == "--on-agent-death" + reason);
  CHECK(usage_error({"--on_agent_death", "adopt", "x"}) == "--on_agent_death" + reason);
  CHECK(
      usage_error({"--on-agent-death=resume", "x"}) ==
      "argument --on-agent-death/--on_agent_death: invalid choice: 'resume' (choose from 'kill')");
  environment["MUSTER_ON_AGENT_DEATH"] = "adopt";
  CHECK(usage_error({"x"}) == "MUSTER_ON_AGENT_DEATH" + reason);
  CHECK(flags({"--on-agent-death=kill", "x"}).on_agent_death == "kill");
  // muster's own options have no PET_ variable.
  environment = {{"PATH", "/usr/bin"}, {"PET_ON_AGENT_DEATH", "adopt"}};
  CHECK(warnings({"x"}) == Words{"PET_ON_AGENT_DEATH has no effect: no option reads it"});
}

}  // namespace
}  // namespace muster::testing
