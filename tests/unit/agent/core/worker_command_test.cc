#include "agent/core/worker_command.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

using Words = std::vector<std::string>;

AgentOptions python(Words arguments) {
  AgentOptions options;
  options.command = {"/opt/$local_rank/python", "-u"};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  return options;
}

TEST_CASE("worker_command: the rank is put into every argument, not into the interpreter",
          "[unit][agent]") {
  const AgentOptions options = python({"train_${local_rank}.py", "--device", "cuda:$local_rank"});
  CHECK(worker_command(options, LocalRank{2}) ==
        Words{"/opt/$local_rank/python", "-u", "train_2.py", "--device", "cuda:2"});
  CHECK(worker_command(options, LocalRank{11}).back() == "cuda:11");
}

TEST_CASE("worker_command: dollars in the user's arguments follow Python's rules",
          "[unit][agent]") {
  const AgentOptions options = python({"x", "pa$$word", "$HOME", "^a$", "${local_rank:-0}", ""});
  CHECK(worker_command(options, LocalRank{0}) == Words{"/opt/$local_rank/python", "-u", "x",
                                                       "pa$word", "$HOME", "^a$",
                                                       "${local_rank:-0}", ""});
}

TEST_CASE("worker_command: with --no-python the program stays as it is", "[unit][agent]") {
  AgentOptions options;
  options.command = {"./run_${local_rank}", "$local_rank"};
  options.first_argument = 1;
  CHECK(worker_command(options, LocalRank{1}) == Words{"./run_${local_rank}", "1"});
}

TEST_CASE("worker_command: the digest is that of the script and its arguments", "[unit][agent]") {
  const auto digest = [](const std::string& interpreter, Words arguments) {
    AgentOptions options = python(std::move(arguments));
    options.command[0] = interpreter;
    options.entry_point = "train.py";
    return command_digest(options);
  };
  const std::string one = digest("/usr/bin/python3", {"train.py", "--lr", "1e-3"});
  CHECK(one.size() == 16);
  CHECK(digest("/opt/env/bin/python", {"train.py", "--lr", "1e-3"}) == one);
  CHECK(digest("/usr/bin/python3", {"train.py", "--lr", "1e-4"}) != one);
  CHECK(digest("/usr/bin/python3", {"train.py", "--lr1e-3"}) != one);
  CHECK(digest("/usr/bin/python3", {"eval.py", "--lr", "1e-3"}) != one);
  CHECK(digest("/usr/bin/python3", {"train.py", "--lr", "1e-3", ""}) != one);
}

TEST_CASE("worker_command: --local-rank goes where launch puts it", "[unit][agent]") {
  AgentOptions options = python({"train.py", "--lr", "1"});
  options.local_rank_argument_at = 3;
  CHECK(worker_command(options, LocalRank{1}) ==
        Words{"/opt/$local_rank/python", "-u", "train.py", "--local-rank=1", "--lr", "1"});

  options.command = {"python", "-u", "-m", "package.train"};
  options.local_rank_argument_at = 4;  // After the last word.
  CHECK(worker_command(options, LocalRank{7}) ==
        Words{"python", "-u", "-m", "package.train", "--local-rank=7"});
}

TEST_CASE("worker_command: a command of one word is enough", "[unit][agent]") {
  AgentOptions options;
  options.command = {"true"};
  CHECK(worker_command(options, LocalRank{0}) == Words{"true"});
}

TEST_CASE("worker_command: arguments are not shown", "[unit][agent]") {
  AgentOptions options;
  options.command = {"python", "-u", "train.py", "--key=secret", "x"};
  options.entry_point = "train.py";
  CHECK(shown_command(options) == "python -u train.py (and 2 arguments)");
  options.command.resize(4);
  CHECK(shown_command(options) == "python -u train.py (and 1 argument)");
  options.command.resize(3);
  CHECK(shown_command(options) == "python -u train.py");
  options.command = {"python", "-u", "-c", "import runpy", "train.py", "--key=secret"};
  options.entry_point = "run_script_path";
  CHECK(shown_command(options) == "python (and 5 arguments)");
}

TEST_CASE("worker_command: what failed is the program, or the script of --run-path",
          "[unit][agent]") {
  AgentOptions options = python({"train.py"});
  CHECK(failed_program_text(options) == "of binary: " + options.command[0]);
  options.command = {"python", "-u", "-c", "import runpy", "train.py", "--lr", "1"};
  options.first_argument = 4;
  options.runs_path = true;
  options.entry_point = "run_script_path";
  CHECK(failed_program_text(options) == "of fn: run_script_path (train.py)");
}

}  // namespace
}  // namespace muster
