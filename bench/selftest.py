#!/usr/bin/env python3
"""Tests of the bench itself, with fake programs: nothing here depends on how long anything takes.

    python3 bench/selftest.py
"""
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

from muster_bench import context, docs, families, interleave  # noqa: E402
from muster_bench import lines, model, programs, table  # noqa: E402
from muster_bench.command import Command, clean_environment  # noqa: E402

FAKE_LAUNCHER = r'''#!{python}
"""Takes torchrun's words (or bare_launcher's), and plays the workers itself."""
import os, re, sys, time
with open(os.environ["ORDER_FILE"], "a") as file:
    file.write("{name}\n")
words = sys.argv[1:]
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
open(os.environ["MUSTER_BENCH_GATE"]).read()
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


def row(name="x.ms", better="lower", target=None, why=None, **samples):
    quantity = model.Quantity(name, "ms", "what it is", better, target)
    return model.Row(quantity, {role: samples.get(role, []) for role in model.ROLES}, why or {})


class StatisticsTest(unittest.TestCase):
    def test_the_median_and_the_spread_are_of_that_columns_samples(self):
        one = row(muster=[3.0, 1.0, 2.0], peer=[10.0, 20.0])
        self.assertEqual(one.medians(), {"muster": 2.0, "peer": 15.0, "limit": None})
        self.assertEqual(one.spread("muster"), (1.0, 3.0))
        self.assertIsNone(one.spread("limit"))

    def test_the_ratio_says_how_many_times_better_muster_is(self):
        self.assertEqual(row(muster=[2.0], peer=[8.0]).ratio(), 4.0)
        self.assertEqual(row(better="higher", muster=[8.0], peer=[2.0]).ratio(), 4.0)
        self.assertIsNone(row(muster=[2.0]).ratio())
        self.assertIsNone(row(muster=[0.0], peer=[2.0]).ratio())

    def test_a_target_is_met_missed_or_not_known(self):
        below = model.Target(10)
        self.assertTrue(row(target=below, muster=[9.9]).met())
        self.assertFalse(row(target=below, muster=[10.0]).met())
        self.assertIsNone(row(target=below).met())
        near = model.Target(0.95, of="limit", or_equal=True)
        self.assertTrue(row(better="higher", target=near, muster=[95.0], limit=[100.0]).met())
        self.assertFalse(row(better="higher", target=near, muster=[94.0], limit=[100.0]).met())
        self.assertIsNone(row(better="higher", target=near, muster=[94.0]).met())

    def test_merging_replaces_rows_by_name_and_keeps_the_order(self):
        older = [row("a", muster=[1.0]), row("b", muster=[1.0])]
        merged = model.merge(older, [row("c"), row("a", muster=[7.0])])
        self.assertEqual([one.quantity.name for one in merged], ["a", "b", "c"])
        self.assertEqual(merged[0].median("muster"), 7.0)


class InterleaveTest(unittest.TestCase):
    def contender(self, role, log, values=(1.0,), **more):
        supply = iter(values * 100)

        def sample():
            log.append(role)
            value = next(supply)
            if value is None:
                raise model.MeasureError("fell over")
            return {"x.ms": value}
        return interleave.Contender(role, sample, **more)

    def test_all_are_measured_in_turn(self):
        log = []
        contenders = [self.contender(role, log) for role in model.ROLES]
        interleave.interleave([row().quantity], contenders, 2)
        self.assertEqual(log, ["muster", "peer", "limit"] * 2)

    def test_the_quick_ones_may_go_several_times_in_each_round(self):
        log = []
        contenders = [self.contender("muster", log, per_round=2), self.contender("peer", log)]
        interleave.interleave([row().quantity], contenders, 2)
        self.assertEqual(log, ["muster", "muster", "peer"] * 2)

    def test_a_missing_program_leaves_its_column_empty_and_says_why(self):
        contenders = [interleave.Contender("muster", None, why_not="no such thing"),
                      self.contender("peer", [])]
        [result] = interleave.interleave([row().quantity], contenders, 3)
        self.assertEqual(result.medians(), {"muster": None, "peer": 1.0, "limit": None})
        self.assertEqual(result.why, {"muster": "no such thing"})

    def test_one_that_fails_loses_its_column_and_the_others_go_on(self):
        log = []
        contenders = [self.contender("muster", log, values=(1.0, None)),
                      self.contender("peer", log)]
        [result] = interleave.interleave([row().quantity], contenders, 3)
        self.assertEqual(log, ["muster", "peer", "muster", "peer", "peer"])
        self.assertEqual(result.samples, {"muster": [], "peer": [1.0] * 3})
        self.assertEqual(result.why, {"muster": "failed: fell over"})

    def test_a_quantity_that_a_contender_never_returns_is_empty_with_a_reason(self):
        other = model.Quantity("y.ms", "ms", "another")
        rows = interleave.interleave([row().quantity, other], [self.contender("peer", [])], 1)
        self.assertEqual(rows[1].why, {"peer": "does not have this"})


class TableTest(unittest.TestCase):
    ROWS = [row("start.2.first_ms", target=model.Target(10), muster=[5.0, 7.0], peer=[1200.0],
                limit=[1.25]),
            row("agent.memory_mb", why={"muster": "no program"}, peer=[230.4])]

    def test_the_json_is_a_list_of_objects_that_reads_back_the_same(self):
        file = io.StringIO()
        table.write_json(self.ROWS, file)
        records = json.loads(file.getvalue())
        self.assertEqual([{key: record[key] for key in ("name", "muster", "peer", "limit", "unit")}
                          for record in records],
                         [{"name": "start.2.first_ms", "muster": 6.0, "peer": 1200.0,
                           "limit": 1.25, "unit": "ms"},
                          {"name": "agent.memory_mb", "muster": None, "peer": 230.4,
                           "limit": None, "unit": "ms"}])
        file.seek(0)
        self.assertEqual(table.read_json(file), self.ROWS)

    def test_the_table_has_the_medians_the_ratio_and_why_a_column_is_empty(self):
        text = table.plain(self.ROWS)
        first = next(line for line in text.splitlines() if line.startswith("start.2.first_ms"))
        self.assertRegex(first, r"6\.00 +1,200 +200× +1\.25 +ms +< 10 met +2/1/1 +what it is")
        self.assertIn("muster empty: no program (agent.memory_mb)", text)
        self.assertIn("5.00 .. 6.00 .. 7.00", table.plain(self.ROWS, verbose=True))

    def test_the_markdown_has_as_many_cells_in_every_line(self):
        rows = [line for line in table.markdown(self.ROWS).splitlines() if line.startswith("|")]
        self.assertEqual(len(rows), 2 + len(self.ROWS))
        self.assertEqual(len({line.count("|") for line in rows}), 1)

    def test_numbers_keep_three_digits(self):
        texts = [table.number(value) for value in (None, 0.0123, 1.5, 15.26, 152.6, 123456.7)]
        self.assertEqual(texts, ["", "0.012", "1.50", "15.3", "153", "123,457"])

    def test_only_what_is_between_the_markers_is_replaced(self):
        page = f"above\n{docs.BEGIN}\nold\n{docs.END}\nbelow\n"
        once = docs.replace_between_markers(page, "new\n")
        self.assertEqual(once, f"above\n{docs.BEGIN}\nnew\n{docs.END}\nbelow\n")
        self.assertEqual(docs.replace_between_markers(once, "new\n"), once)
        with self.assertRaises(ValueError):
            docs.replace_between_markers("no markers", "new")

    def test_the_page_that_is_kept_has_the_markers(self):
        docs.replace_between_markers(docs.PAGE.read_text(), "new")


class LinesTest(unittest.TestCase):
    COUNT = 1200

    def console(self, change=lambda data: data, torn=False):
        text = b"".join(b"[default%d]:%d\n" % (rank, number)
                        for number in range(1, self.COUNT + 1) for rank in (0, 1))
        if torn:
            text = text.replace(b"[default0]:1000\n[default1]:1000\n",
                                b"[default0]:10[default1]:1000\n[default0]:00\n", 1)
        return io.BytesIO(change(text))

    def test_the_expected_size_is_that_of_the_lines(self):
        for count in (1, 9, 10, 99, 12345):
            everything = b"".join(b"%d\n" % number for number in range(1, count + 1))
            self.assertEqual(lines.Numbers.size(count), len(everything))
            self.assertEqual(lines.Numbers(count).take(len(everything) + 5), everything)

    def test_whole_lines_pass_whatever_the_chunks(self):
        for size in (7, 64, 1 << 20):
            with unittest.mock.patch.object(lines, "CHUNK_BYTES", size):
                self.assertEqual(lines.check_prefixed(self.console(), 2, self.COUNT), 0)

    def test_a_torn_line_is_counted(self):
        self.assertEqual(lines.check_prefixed(self.console(torn=True), 2, self.COUNT), 1)

    def test_a_missing_a_wrong_and_a_foreign_byte_are_found(self):
        for old, new in ((b"]:77\n", b"]:7\n"), (b"]:77\n", b"]:78\n"), (b"[default0]:1\n", b"1\n"),
                         (b"[default1]:9\n", b"[default2]:9\n")):
            with self.subTest(new=new), self.assertRaises(model.MeasureError):
                lines.check_prefixed(
                    self.console(lambda data: data.replace(old, new, 1)), 2, self.COUNT)

    def test_a_log_file_is_the_lines_and_nothing_else(self):
        good = b"".join(b"%d\n" % number for number in range(1, self.COUNT + 1))
        lines.check_plain(io.BytesIO(good), self.COUNT)
        for bad in (good[:-1], good + b"x", good.replace(b"\n", b" ", 1)):
            with self.assertRaises(model.MeasureError):
                lines.check_plain(io.BytesIO(bad), self.COUNT)


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
            timeout=120, env=os.environ | {"ORDER_FILE": str(self.order)})

    def measured(self, *words):
        file = self.folder / "result.json"
        done = self.run_bench(*words, "--json", file)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return {record["name"]: record for record in json.loads(file.read_text())}

    def given(self):
        return ("--muster", self.folder / "muster", "--torchrun", self.folder / "torchrun")


class RunTest(WithFakes):
    def test_launchers_are_measured_in_turn_and_every_name_is_there(self):
        self.fakes()
        found = self.measured("start", "--repetitions", "2", *self.given())
        self.assertEqual(list(found), [f"start.{count}.{which}_ms" for count in (1, 2, 8, 64)
                                       for which in ("first", "last")])
        # Two rounds for each of the four counts; muster and the limit go 5 times in each.
        one_round = ["muster"] * 5 + ["torchrun"] + ["bare_launcher"] * 5
        self.assertEqual(self.order.read_text().split(), one_round * 2 * 4)
        for record in found.values():
            self.assertEqual([len(record["samples"][role]) for role in model.ROLES], [10, 2, 10])
            self.assertTrue(all(record[role] > 0 for role in model.ROLES), record)

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
        """name -> Row, of the whole family with fake servers and a fake load."""
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
        # The bare server cannot wake or hold at a barrier.
        without_limit = ([muster] * 3 + [peer]) * 2
        shared = usual * 2 + thousand + without_limit * 2
        self.assertEqual(ports[:len(shared)], shared)
        # Connect, the large value and the idle ones have servers of their own.
        others = ports[len(shared):]
        self.assertEqual(len(others), 14 + 4 + 6)
        self.assertTrue({muster, peer, limit}.isdisjoint(others))
        self.assertEqual(found["store.64.getset_ops_s"].medians(),
                         {"muster": 5.0, "peer": 5.0, "limit": 5.0})
        self.assertEqual(found["store.wake_1000_ms"].why, {"limit": families.load()["store"].BARE_CANNOT})
        self.assertEqual(found["store.value_64mb.get_mb_s"].medians(),
                         {"muster": 2.0, "peer": 2.0, "limit": 9.0})
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
    def test_one_that_does_not_end_is_ended_with_what_it_started(self):
        child = self.folder / "child"
        path = self.program("stuck", f"#!/bin/sh\nsleep 1000 &\necho $! >{child}\nwait\n")
        with self.assertRaises(model.MeasureError):
            with Command([path], limit_s=2) as command:
                command.wait_for_mains(1)
        self.assertEqual(command.status, -9)
        self.assert_gone(int(child.read_text()))

    def assert_gone(self, pid):
        """Gone, or dead and not yet reaped by whoever inherited it."""
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

    def test_paths_in_the_table_are_relative_to_the_repository(self):
        found = programs.find()
        for program in (found.muster, found.torchrun):
            self.assertNotIn(str(programs.ROOT), program.why_not)


if __name__ == "__main__":
    unittest.main()
