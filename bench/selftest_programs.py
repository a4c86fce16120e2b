"""Tests of the bench with fake launchers, servers and loads. bench/selftest.py runs them."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from muster_bench import context, families, model, programs
from muster_bench.command import Command, clean_environment

RUN_LIMIT_S = 900  # A limit for a very busy machine. Usually a run takes seconds.
HERE = pathlib.Path(__file__).resolve().parent

FAKE_LAUNCHER = r'''#!{python}
"""Accepts the arguments of torchrun or bare_launcher, and plays the workers itself."""
import os, re, sys, time
with open(os.environ["ORDER_FILE"], "a") as file:
    file.write("{name}\n")
words = sys.argv[1:]
if words in (["--help"], ["exit"]):
    print("--nproc-per-node")
    sys.exit()
given = [re.fullmatch(r"--nproc-per-node=(\d+)", word) for word in words]
count = next((int(match[1]) for match in given if match), None)
if count is None:
    count = int(words[2])
mode = words[-1]
notes = os.open(os.environ["MUSTER_BENCH_NOTES"], os.O_WRONLY)
def note(what, rank, attempt):
    os.write(notes, b"%s %d %d %d %d\n" % (what, rank, attempt, 1, time.monotonic_ns()))
for rank in range(count):
    note(b"main", rank, 0)
# The bench may have opened the gate already. A blocking open() would then wait for ever.
gate = os.open(os.environ["MUSTER_BENCH_GATE"], os.O_RDONLY | os.O_NONBLOCK)
os.set_blocking(gate, True)
while os.read(gate, 1):
    pass
if mode == "fail-once":
    note(b"end", 0, 0)
    for rank in range(count):
        note(b"main", rank, 1)
for rank in range(count):
    note(b"end", rank, 1 if mode == "fail-once" else 0)
'''

FAKE_SERVER = r"""#!{python}
import signal, socket
listening = socket.create_server(("127.0.0.1", 0))
print("{name}: listening on 127.0.0.1:%d" % listening.getsockname()[1], flush=True)
signal.pause()
"""

FAKE_LOAD = r"""#!{python}
import json, os, sys, time
SLOW = None
def given(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None
with open(os.environ["ORDER_FILE"], "a") as file:
    file.write(given("--port") + "\n")
os.kill(int(given("--pid")), 0)
if SLOW and given("--scenario") == SLOW:
    time.sleep(60)
print(json.dumps({None: {"ops_s": 5.0, "p99_us": 7.0, "server_cpu_us_per_request": 0.5},
                  "connect": {"connect_s": 3.0}, "wake": {"wake_ms": 4.0},
                  "barrier": {"barrier_ms": 2.0},
                  "large": {"set_mb_s": 1.0, "get_mb_s": 2.0, "memcpy_mb_s": 9.0},
                  "idle": {"rss_before_mb": 10.0, "rss_mb": 12.5}}[given("--scenario")]))
"""


class WithFakes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-bench-selftest-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.order = self.folder / "order"

    def program(self, name, text):
        path = self.folder / name
        path.write_text(text.replace("{python}", sys.executable).replace("{name}", name))
        path.chmod(0o755)
        return path

    def fakes(self):
        for name in ("muster", "torchrun", "bare_launcher", "note_time"):
            self.program(name, FAKE_LAUNCHER)

    def run_bench(self, *words):
        return subprocess.run(
            [HERE / "run", *words, "--native", self.folder], capture_output=True, text=True,
            timeout=RUN_LIMIT_S, env=os.environ | {"ORDER_FILE": str(self.order)})

    def measured(self, *words):
        file = self.folder / "result.json"
        done = self.run_bench(*words, "--json", file)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return {record["name"]: record for record in json.loads(file.read_text())}

    def given(self):
        return ("--muster", self.folder / "muster", "--torchrun", self.folder / "torchrun")


class RunTest(WithFakes):
    def test_launchers_are_measured_in_turn(self):
        self.fakes()
        record = self.measured("restart", "--repetitions", "2", *self.given())["restart.2_ms"]
        one_round = ["muster"] * 3 + ["torchrun"] + ["bare_launcher"] * 3
        self.assertEqual(self.order.read_text().split(), one_round * 2)
        self.assertEqual([len(record["samples"][role]) for role in model.ROLES], [6, 2, 6])

    def test_a_start_has_a_first_and_a_last_worker(self):
        self.fakes()
        found = self.measured("start", "--quick", *self.given())
        self.assertEqual(list(found), [f"start.{count}.{which}_ms" for count in (1, 2, 8, 64)
                                       for which in ("first", "last")] + ["start.help_ms"])
        for role in model.ROLES:
            self.assertGreater(found["start.help_ms"][role], 0)
            first, last = (found[f"start.64.{which}_ms"][role] for which in ("first", "last"))
            self.assertTrue(0 < first < last, (role, first, last))

    def test_a_help_without_options_is_a_failure(self):
        self.fakes()
        self.program("muster", FAKE_LAUNCHER.replace("print(", "str("))
        done = self.run_bench("start", "--quick", *self.given())
        self.assertEqual(done.returncode, 1)
        self.assertIn("muster empty: failed: --help does not name --nproc-per-node (start.help_ms)",
                      done.stdout)

    def test_exit_restart_and_memory_read_the_workers_notes(self):
        self.fakes()
        found = self.measured("exit", "restart", "memory", "--quick", *self.given())
        self.assertEqual(list(found), ["exit.2_ms", "exit.64_ms", "restart.2_ms",
                                       "agent.memory_mb", "agent.largest_rss_mb"])
        self.assertTrue(all(record["muster"] > 0 for record in found.values()), found)

    def test_what_is_missing_is_null_and_the_table_says_so(self):
        self.fakes()
        (self.folder / "bare_launcher").unlink()
        done = self.run_bench("restart", "--quick", *self.given(), "--json",
                              self.folder / "out.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("limit empty: no ", done.stdout)
        [record] = json.loads((self.folder / "out.json").read_text())
        self.assertIsNone(record["limit"])
        self.assertEqual(record["samples"]["limit"], [])

    def test_a_program_that_fails_is_told_with_what_it_printed(self):
        self.fakes()
        self.program("muster", "#!/bin/sh\necho this is why >&2\nexit 7\n")
        done = self.run_bench("restart", "--quick", *self.given())
        self.assertEqual(done.returncode, 1)
        self.assertIn("muster empty: failed: ended with status 7", done.stdout)
        self.assertIn("this is why", done.stdout)

    def test_earlier_results_are_kept_and_replaced_by_name(self):
        self.fakes()
        self.measured("restart", "--quick", *self.given())
        earlier = self.folder / "earlier.json"
        (self.folder / "result.json").rename(earlier)
        both = self.measured("exit", "--quick", *self.given(), "--from", earlier)
        self.assertEqual(list(both), ["restart.2_ms", "exit.2_ms", "exit.64_ms"])

    def test_bad_usage_is_2(self):
        for words in (["nothing"], ["--repetitions", "0"], ["--muster", "/no/such/program"]):
            self.assertEqual(self.run_bench(*words).returncode, 2, words)

    def test_the_list_names_every_family(self):
        done = self.run_bench("--list")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()],
                         list(families.load()))


class StoreTest(WithFakes):
    def measured(self, rounds=1, **given):
        """Returns name -> Row, for the whole family with fake servers and a fake load."""
        for name in ("musterd", "python3", "bare_epoll_server"):
            self.program(name, FAKE_SERVER)
        self.program("torchrun", FAKE_LAUNCHER)
        self.program("store_load", FAKE_LOAD)
        for name, text in given.items():
            self.program(name, text)
        found = programs.find(musterd=self.folder / "musterd", torchrun=self.folder / "torchrun",
                              native_dir=self.folder)
        store = families.load()["store"]
        with unittest.mock.patch.object(store.socket, "getnameinfo"), \
                unittest.mock.patch.dict(os.environ, {"ORDER_FILE": str(self.order)}):
            rows = store.measure(context.Bench(found, lambda text: None, repetitions=rounds))
        return {one.quantity.name: one for one in rows}

    def test_the_three_servers_get_each_load_in_turn(self):
        found = self.measured(rounds=2)
        ports = self.order.read_text().split()
        muster, peer, limit = ports[:3]
        self.assertEqual(len({muster, peer, limit}), 3)
        usual, thousand = [muster, peer, limit] * 2, ([muster] * 3 + [peer] + [limit] * 3) * 2
        # The bare server has no waiting and no barrier.
        without_limit = ([muster] * 3 + [peer]) * 2
        shared = usual * 2 + thousand + without_limit * 2
        self.assertEqual(ports[:len(shared)], shared)
        # The measurements of connects, large values and idle connections use new servers.
        others = ports[len(shared):]
        self.assertEqual(len(others), 14 + 6 + 6)
        self.assertTrue({muster, peer, limit}.isdisjoint(others))
        self.assertEqual(found["store.64.getset_ops_s"].medians(),
                         {"muster": 5.0, "peer": 5.0, "limit": 5.0})
        self.assertEqual(found["store.wake_1000_ms"].why,
                         {"limit": families.load()["store"].BARE_CANNOT})
        self.assertEqual(found["store.value_64mb.get_mb_s"].medians(),
                         dict.fromkeys(model.ROLES, 2.0))
        self.assertEqual(found["store.idle_10000_mb"].medians(), dict.fromkeys(model.ROLES, 2.5))
        self.assertFalse(any(why.startswith("failed") for one in found.values()
                             for why in one.why.values()))

    def test_a_server_that_does_not_start_is_a_failure_with_its_reason(self):
        found = self.measured(musterd="#!/bin/sh\necho no such option >&2\nexit 2\n")
        row_of_64 = found["store.64.getset_ops_s"]
        self.assertIn("failed: its server ended before it was ready: no such option",
                      row_of_64.why["muster"])
        self.assertEqual(row_of_64.median("limit"), 5.0)

    def test_a_load_that_fails_is_a_failure_with_its_reason(self):
        found = self.measured(store_load="#!/bin/sh\necho lost a reply >&2\nexit 1\n")
        self.assertIn("lost a reply", found["store.1.p99_us"].why["muster"])
        self.assertTrue(found["store.1.p99_us"].why["muster"].startswith("failed: "))

    def test_a_load_that_takes_too_long_is_too_slow_and_no_failure(self):
        with unittest.mock.patch.object(families.load()["store"], "IDLE_LIMIT_S", 0.2):
            found = self.measured(store_load=FAKE_LOAD.replace("SLOW = None", 'SLOW = "idle"'))
        self.assertRegex(found["store.idle_10000_mb"].why["peer"], "^too slow: .*not done within")
        self.assertEqual(found["store.1.p99_us"].median("peer"), 7.0)


class CommandTest(WithFakes):
    def test_a_program_that_does_not_end_is_ended_with_its_children(self):
        child = self.folder / "child"
        path = self.program("stuck", f"#!/bin/sh\nsleep 1000 &\necho $! >{child}\nwait\n")
        with self.assertRaises(model.MeasureError):
            with Command([path], limit_s=2) as command:
                self.wait_for_text(child)  # It may come after the limit. The wait below then ends at once.
                command.wait_for_mains(1)
        self.assertEqual(command.status, -9)
        self.assert_gone(int(child.read_text()))

    def wait_for_text(self, path):
        deadline_s = time.monotonic() + RUN_LIMIT_S
        while not (path.exists() and path.read_text()):
            self.assertLess(time.monotonic(), deadline_s, f"no text in {path}")
            time.sleep(0.01)

    def assert_gone(self, pid):
        """Checks that the process has ended. It may be a zombie that is not reaped yet."""
        deadline_s = time.monotonic() + 10
        while time.monotonic() < deadline_s:
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state == "Z":
                return
            time.sleep(0.01)
        self.fail(f"process {pid} is still there")

    def test_a_surrounding_launchers_variables_are_not_passed_on(self):
        with unittest.mock.patch.dict(os.environ, {"RANK": "3", "PET_NNODES": "2", "PATH": "/bin"}):
            environment = clean_environment(MORE="1")
        self.assertNotIn("RANK", environment)
        self.assertNotIn("PET_NNODES", environment)
        self.assertEqual((environment["PATH"], environment["MORE"]), ("/bin", "1"))

    def test_a_python_without_nvrx_is_named(self):
        (self.folder / "bin").mkdir()
        python = self.folder / "bin/python3"
        python.symlink_to(sys.executable)
        found = programs.find(nvrx=python).nvrx
        self.assertFalse(found)
        self.assertRegex(found.why_not, "^no nvidia-resiliency-ext beside .*bin/python3")
        (self.folder / "lib/python3.99/site-packages/nvidia_resiliency_ext").mkdir(parents=True)
        self.assertEqual(programs.find(nvrx=python).nvrx.path, str(python))

    def test_paths_in_the_table_are_relative_to_the_repository(self):
        found = programs.find()
        for program in (found.muster, found.torchrun):
            self.assertNotIn(str(programs.ROOT), program.why_not)
