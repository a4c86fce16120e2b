// The values of flags: endpoints, --rdzv-conf, stream maps, signals; and the search for Python.
#include <signal.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "base/python_text.h"
#include "launcher/python_command.h"
#include "launcher/rendezvous_flags.h"
#include "launcher/stream_flags.h"
#include "tests/unit/launcher/plan_fixture.h"

namespace muster::testing {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("endpoint: host, port, brackets", "[unit][launcher]") {
  const std::map<std::string, Endpoint> good = {
      {"", {"localhost", {}}},
      {"  h  ", {"h", {}}},
      {"h:29400", {"h", 29400}},
      {"node-1.example_x.org:0", {"node-1.example_x.org", 0}},
      {"10.0.0.1:65535", {"10.0.0.1", 65535}},
      {"[::1]", {"::1", {}}},
      {"[::1]:5", {"::1", 5}},
      {"::1", {"::1", {}}},
      {"2001:db8::5", {"2001:db8::5", {}}},
      {"1:2:3:4:5:6:7:8", {"1:2:3:4:5:6:7:8", {}}},
      {"fe80::1%eth0", {"fe80::1%eth0", {}}},
      {"fe80::1:29400", {"fe80::1", 29400}},  // As torchrun splits it.
  };
  for (const auto& [text, endpoint] : good) {
    INFO(text);
    const auto parsed = parse_endpoint(text, "--rdzv-endpoint");
    REQUIRE(parsed.has_value());
    CHECK(*parsed == endpoint);
  }
  for (const char* bad : {"h:", "h:x", "h:65536", "h:123456", "h:-1", "a b:1", ":1", "h/x", "[]"})
    CHECK_FALSE(parse_endpoint(bad, "--rdzv-endpoint").has_value());
  CHECK(to_text({"::1", 5}) == "[::1]:5");
  CHECK(to_text({"h", {}}) == "h");
}

TEST_CASE("rdzv-conf: keys and values are checked", "[unit][launcher]") {
  const auto conf = parse_rendezvous_conf(
      " join_timeout = 60 , is_host=True,join_timeout=70,use_libuv=0", "c10d", "--rdzv-conf");
  REQUIRE(conf.has_value());
  CHECK(conf->values == std::map<std::string, std::string>{
                            {"join_timeout", "70"}, {"is_host", "True"}, {"use_libuv", "0"}});
  CHECK(conf->without_effect == std::vector<std::string>{"use_libuv"});
  for (const char* empty : {"  ", "''", " \" \""})
    CHECK(parse_rendezvous_conf(empty, "c10d", "f")->values.empty());
  // A script that quotes twice adds these quotes.
  const auto quoted = parse_rendezvous_conf(" 'join_timeout=5,is_host=1' ", "c10d", "--rdzv-conf");
  REQUIRE(quoted.has_value());
  CHECK(quoted->values ==
        std::map<std::string, std::string>{{"join_timeout", "5"}, {"is_host", "1"}});
  const std::map<std::string, std::string> bad = {
      {"a", "has no value"},
      {"=1", "has no name"},
      {"join_timeout=60,", "has no name"},
      {"join_timeout=", "has no value"},
      {"'join_timeout=5", "there is no setting"},
      {"join_timeout=1.5", "integer above 0"},
      {"join_timeout=0", "integer above 0"},
      {"keep_alive_interval=x", "must be an integer"},
      {"is_host=perhaps", "true or false"},
      {"store_type=tree", "tcp or file"},
      {"backend=c10d", "there is no setting 'backend'"},
      {"jion_timeout=1",
       "'jion_timeout' (did you mean join_timeout?); c10d has "},  // All are listed.
  };
  for (const auto& [text, says] : bad) {
    INFO(text);
    const auto parsed = parse_rendezvous_conf(text, "c10d", "--rdzv-conf");
    REQUIRE_FALSE(parsed.has_value());
    CHECK_THAT(parsed.error().message, Contains("--rdzv-conf") && Contains(says));
  }
}

TEST_CASE("streams: one digit for all, or one for each rank", "[unit][launcher]") {
  CHECK(parse_streams("3", "-r")->at(7) == StreamSet{.out = true, .err = true});
  CHECK(parse_streams("0", "-r")->at(0) == StreamSet{});
  const auto map = parse_streams("0:3,12:1,0:2", "-r");
  REQUIRE(map.has_value());
  CHECK(map->at(0) == StreamSet{.out = false, .err = true});
  CHECK(map->at(12) == StreamSet{.out = true, .err = false});
  CHECK(map->at(1) == StreamSet{});
  for (const char* bad : {"", "4", "33", "0:4", "0:", ":1", "0:1,", "a:1", "-1:1", "0:1 ", "0;1",
                          "0:1:1", "1234567890:1"})
    CHECK_FALSE(parse_streams(bad, "-r").has_value());
}

TEST_CASE("ranks: integers with commas between", "[unit][launcher]") {
  CHECK(parse_ranks("", "f")->empty());
  CHECK(*parse_ranks("0, 2 ,+3,-5", "f") == std::set<int>{-1, 0, 2, 3});
  for (const char* bad : {",", "0,", "a", "1.0", "0-3"})
    CHECK_FALSE(parse_ranks(bad, "f").has_value());
}

TEST_CASE("signals: names to numbers", "[unit][launcher]") {
  const auto list = parse_signals("SIGTERM, SIGUSR1 ,SIGTERM,USR2,,sigint,SIGRTMIN", "f");
  REQUIRE(list.has_value());
  CHECK(list->numbers == std::vector<int>{SIGTERM, SIGUSR1, SIGRTMIN});
  CHECK(list->unknown == std::vector<std::string>{"USR2", "", "sigint"});
  CHECK(parse_signals("SIGRTMAX", "f")->numbers == std::vector<int>{SIGRTMAX});
  for (const char* bad : {"SIGKILL", "SIGTERM,SIGSTOP", "SIGCHLD"})
    CHECK_FALSE(parse_signals(bad, "f").has_value());
}

TEST_CASE("python text: quoting", "[unit][launcher]") {
  CHECK(python_repr("a") == "'a'");
  CHECK(python_repr("it's") == "\"it's\"");
  CHECK(python_repr("it's \"x\"") == "'it\\'s \"x\"'");
  CHECK(python_repr(std::string_view("\n\t\r\\\x01\x7f", 6)) == "'\\n\\t\\r\\\\\\x01\\x7f'");
}

struct PythonFixture {
  Environment environment{{"PATH", "/a::/b"}};
  std::set<std::string> programs;
  std::set<std::string> files;
  std::string argv0 = "muster";

  std::string found() const {
    const auto python = find_python(environment, argv0, first_of(programs), first_of(files));
    return python ? python->path : "none";
  }
  std::string warning() const {
    const auto python = find_python(environment, argv0, first_of(programs), first_of(files));
    return python ? python->warning : "none";
  }
};

TEST_CASE_METHOD(PythonFixture, "python: the order of the places where it is looked for",
                 "[unit][launcher]") {
  CHECK(found() == "none");
  programs.insert("/b/python");
  CHECK(found() == "/b/python");
  programs.insert("/b/python3");
  CHECK(found() == "/b/python3");
  programs.insert("./python3");  // Found by the empty entry of PATH.
  CHECK(found() == "./python3");
  argv0 = "/opt/bin/torchrun";
  programs.insert("/opt/bin/python");
  CHECK(found() == "/opt/bin/python");
  environment["CONDA_PREFIX"] = "/conda";
  CHECK(found() == "/opt/bin/python");  // The conda environment has no Python.
  programs.insert("/conda/bin/python");
  CHECK(found() == "/conda/bin/python");
  environment["VIRTUAL_ENV"] = "/venv/";
  programs.insert("/venv/bin/python");
  CHECK(found() == "/venv/bin/python");
  environment["PYTHON_EXEC"] = "python3.9";
  CHECK(found() == "python3.9");
  environment["PYTHON_EXEC"] = "";
  CHECK(found() == "/venv/bin/python");
}

TEST_CASE_METHOD(PythonFixture, "python: without PATH it is looked for where programs are then",
                 "[unit][launcher]") {
  environment.erase("PATH");
  CHECK(found() == "none");
  programs = {"/usr/bin/python"};
  CHECK(found() == "/usr/bin/python");
  environment["PATH"] = "";  // That is the current directory, as execvp() has it.
  CHECK(found() == "none");
}

TEST_CASE_METHOD(PythonFixture, "python: the one beside a muster that was called by its path",
                 "[unit][launcher]") {
  programs = {"/conda/bin/python3", "/venv/bin/python3", "/usr/bin/python3"};
  environment = {{"PATH", "/venv/bin:/usr/bin"}, {"CONDA_PREFIX", "/conda"}};
  for (const char* marker : {"/venv/bin/../pyvenv.cfg", "/venv/bin/../conda-meta"}) {
    files = {marker};
    for (const char* name : {"muster", "torchrun", "muster-launch"}) {
      argv0 = std::string("/venv/bin/") + name;
      CHECK(found() == "/venv/bin/python3");
    }
    for (const char* name : {"/usr/bin/muster", "muster"}) {  // In no environment.
      argv0 = name;
      CHECK(found() == "/venv/bin/python3");
      environment["PATH"] = "/usr/bin";
      CHECK(found() == "/conda/bin/python3");
      environment["PATH"] = "/venv/bin:/usr/bin";
    }
  }
  argv0 = "/venv/bin/muster";
  programs.erase("/venv/bin/python3");
  CHECK(found() == "/conda/bin/python3");
}

TEST_CASE_METHOD(PythonFixture, "python: the one beside the torchrun that PATH finds",
                 "[unit][launcher]") {
  argv0 = "torchrun";
  programs = {"/b/torchrun", "/b/python3", "/a/python3"};
  CHECK(found() == "/b/python3");
  argv0 = "muster";
  CHECK(found() == "/a/python3");
}

TEST_CASE_METHOD(PythonFixture, "python: what is first in PATH wins among environments",
                 "[unit][launcher]") {
  programs = {"/old/bin/python3", "/new/bin/python3", "/usr/bin/python3", "/new/bin/torchrun",
              "/usr/bin/muster"};
  environment = {
      {"PATH", "/new/bin:/old/bin/:/usr/bin"}, {"VIRTUAL_ENV", "/old"}, {"CONDA_PREFIX", "/new/"}};
  for (const char* called : {"muster", "torchrun", "/usr/bin/muster"}) {
    argv0 = called;
    CHECK(found() == "/new/bin/python3");  // As `python3` in the same shell.
    CHECK(warning().empty());
  }
  // `module load` and the like set no variable at all.
  environment.erase("CONDA_PREFIX");
  files = {"/new/bin/../pyvenv.cfg", "/old/bin/../pyvenv.cfg"};
  argv0 = "torchrun";
  CHECK(found() == "/new/bin/python3");
  argv0 = "muster";  // In no environment.
  CHECK(found() == "/new/bin/python3");
  files.clear();  // A module's Python, in no environment.
  CHECK(found() == "/new/bin/python3");
  files = {"/new/bin/../pyvenv.cfg", "/old/bin/../pyvenv.cfg"};
  // A venv that is active before the environment that has torchrun.
  argv0 = "torchrun";
  environment["PATH"] = "/old/bin:/new/bin:/usr/bin";
  CHECK(found() == "/old/bin/python3");
  // PATH does not have the venv: only the variable names it.
  environment["PATH"] = "/usr/bin";
  CHECK(found() == "/old/bin/python3");
  environment["PATH"] = "/new/bin:/usr/bin";
  CHECK(found() == "/new/bin/python3");
}

TEST_CASE_METHOD(PythonFixture, "python: a dead link as an environment's Python is told",
                 "[unit][launcher]") {
  programs = {"/usr/bin/python3", "/conda/bin/python"};
  files = {"/venv/bin/python3", "/venv/bin/../pyvenv.cfg"};
  environment = {{"PATH", "/venv/bin:/usr/bin"}, {"VIRTUAL_ENV", "/venv"}};
  for (const char* called : {"muster", "/venv/bin/muster"}) {
    argv0 = called;
    CHECK(found() == "/usr/bin/python3");
    CHECK_THAT(warning(),
               Contains("has no Python that can be run: /venv/bin/python3 leads to none") &&
                   Contains(": /usr/bin/python3 runs the script"));
  }
  files.clear();
  argv0 = "muster";
  CHECK(warning() == "VIRTUAL_ENV=/venv has no Python: /usr/bin/python3 runs the script");
  environment["CONDA_PREFIX"] = "/conda";
  CHECK(warning() == "VIRTUAL_ENV=/venv has no Python: /conda/bin/python runs the script");
  environment["VIRTUAL_ENV"] = "";
  environment["PATH"] = "/conda/bin:/usr/bin";
  CHECK(warning().empty());
  environment["CONDA_PREFIX"] = "/r";  // An environment for another language.
  environment["PATH"] = "/usr/bin";
  CHECK(found() == "/usr/bin/python3");
  CHECK(warning().empty());
}

TEST_CASE_METHOD(PythonFixture, "python: a warning names a Python that is not the shell's",
                 "[unit][launcher]") {
  programs = {"/venv/bin/python3", "/usr/bin/python3", "/usr/bin/muster"};
  files = {"/venv/bin/../pyvenv.cfg"};
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    environment = {{"PATH", "/usr/bin"}, {name, "/venv"}};
    CHECK(found() == "/venv/bin/python3");
    CHECK(warning() ==
          std::string(name) +
              "=/venv is not in PATH, whose python3 is another one, /usr/bin/python3 (set "
              "PYTHON_EXEC to choose): /venv/bin/python3 runs the script");
    environment["PATH"] = "/usr/bin:/venv/bin";  // PATH has it: it is not the first.
    CHECK(found() == "/usr/bin/python3");
    CHECK(warning().empty());
  }
  // pyenv-virtualenv 1.4, bin/pyenv-sh-activate: PATH has pyenv's shims only.
  programs.insert("/pyenv/shims/python3");
  environment = {
      {"PATH", "/pyenv/shims:/usr/bin"}, {"VIRTUAL_ENV", "/venv"}, {"PYENV_VIRTUAL_ENV", "/venv"}};
  CHECK(found() == "/venv/bin/python3");
  CHECK(warning().empty());
  environment["PYENV_VIRTUAL_ENV"] = "/another";
  CHECK_THAT(warning(), Contains("VIRTUAL_ENV=/venv is not in PATH"));

  // The program's own environment goes before a Python in no environment.
  programs = {"/venv/bin/python3", "/usr/bin/python3", "/venv/bin/muster", "/venv/bin/torchrun"};
  environment = {{"PATH", "/usr/bin:/venv/bin"}};
  for (const char* name : {"muster", "torchrun"}) {
    argv0 = name;
    CHECK(found() == "/venv/bin/python3");
    CHECK_THAT(warning(),
               Contains("is later in PATH, whose python3 is another one, /usr/bin/python3"));
    argv0 = std::string("/venv/bin/") + name;  // The user has chosen it by its path.
    CHECK(found() == "/venv/bin/python3");
    CHECK(warning().empty());
  }
  files.clear();
  argv0 = "torchrun";
  CHECK(found() == "/venv/bin/python3");
  CHECK_THAT(warning(), Contains("/venv/bin/torchrun is later in PATH"));
  argv0 = "muster";
  CHECK(found() == "/usr/bin/python3");
  CHECK(warning().empty());

  programs = {"/usr/bin/python3", "/opt/bin/python"};
  environment = {{"PATH", "/opt/bin:/usr/bin"}};
  CHECK(found() == "/usr/bin/python3");
  CHECK(warning() ==
        "`python` in PATH is another one, /opt/bin/python: /usr/bin/python3 runs the script");
  environment["PATH"] = "/usr/bin:/opt/bin";
  CHECK(warning().empty());
}

// PATH, variables and files as the tools make them, seen with uv 0.13 and pipx 1.18.
TEST_CASE_METHOD(PythonFixture, "python: the one of uv and pipx", "[unit][launcher]") {
  const std::string rest = "/usr/local/bin:/usr/bin";
  programs = {"/usr/bin/python3",     "/usr/bin/python",  "/p/.venv/bin/python3",
              "/p/.venv/bin/python",  "/c/bin/python3",   "/c/bin/python",
              "/a/bin/python3",       "/tool/bin/muster", "/tool/bin/python3",
              "/tool/bin/torchrun",   "/bin2/muster",     "/bin2/torchrun",
              "/p/.venv/bin/torchrun"};
  files = {"/p/.venv/bin/../pyvenv.cfg", "/c/bin/../pyvenv.cfg", "/a/bin/../pyvenv.cfg",
           "/tool/bin/../pyvenv.cfg"};
  for (const char* name : {"muster", "torchrun"}) {
    INFO(name);
    argv0 = name;
    // uv run, and uv run --with: two environments of the cache before the project's.
    environment = {{"PATH", "/p/.venv/bin:" + rest}, {"VIRTUAL_ENV", "/p/.venv"}};
    CHECK(found() == "/p/.venv/bin/python3");
    environment = {{"PATH", "/c/bin:/a/bin:/p/.venv/bin:" + rest}, {"VIRTUAL_ENV", "/c"}};
    CHECK(found() == "/c/bin/python3");
    CHECK(warning().empty());
    // uvx: PATH only, also with a VIRTUAL_ENV from before.
    environment = {{"PATH", "/c/bin:/p/.venv/bin:" + rest}};
    CHECK(found() == "/c/bin/python3");
    environment["VIRTUAL_ENV"] = "/p/.venv";
    CHECK(found() == "/c/bin/python3");
    CHECK(warning().empty());
    for (const char* marker : {"pipx_metadata.json", "uv-receipt.toml"}) {
      const auto mark = files.insert(std::string("/tool/bin/../") + marker).first;
      // pipx install and uv tool install: a link in a folder of PATH.
      environment = {{"PATH", "/bin2:" + rest}};
      argv0 = name;
      CHECK(found() == "/usr/bin/python3");
      // pipx run calls the program by its path, and leaves PATH as it is.
      argv0 = std::string("/tool/bin/") + name;
      CHECK(found() == "/usr/bin/python3");
      environment = {{"PATH", "/p/.venv/bin:" + rest}, {"VIRTUAL_ENV", "/p/.venv"}};
      CHECK(found() == "/p/.venv/bin/python3");
      CHECK(warning().empty());
      files.erase(mark);
    }
  }
}

}  // namespace
}  // namespace muster::testing
