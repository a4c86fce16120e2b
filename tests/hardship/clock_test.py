#!/usr/bin/env python3
"""The wall clock is set forth and back by hours while jobs run: nothing that muster decides changes. One exception is
not tested: a file timer whose request muster has not read yet when the clock is set.

MUSTER_SHIFTED_CLOCK names tests/support/shifted_clock.cc, built: it shifts the clock of all programs of a test."""
import os
import re
import signal
import struct
import sys
import time

from hardship import HardshipTest, skip_all
from mixed import SHORT_LEASE_S, MusterdTest
from musterd import MUSTERD
from support import main, wait_for

LIBRARY = os.environ.get("MUSTER_SHIFTED_CLOCK", "")
HOURS_S = 3 * 3600
FORTH_AND_BACK = (HOURS_S, -HOURS_S, 0)

# Sets timers as torch's client does. Each attempt waits for the file go.N.
TIMERS = """
import json, os, sys, time
def ask(in_s, scope, signal=9):
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as pipe:
        pipe.write(json.dumps({"version": 1, "pid": os.getpid(), "scope_id": scope, "signal": signal,
                               "expiration_time": time.time() + in_s if in_s >= 0 else -1}) + "\\n")
def ready():
    with open("ready", "a") as file: print("x", file=file)
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
def wait_until_read():
    # The requests are read in order: when the timer of the child has run out, those before it have been read.
    child = os.fork()
    if child == 0:
        ask(0, "now")
        time.sleep(1000)
    os.waitpid(child, 0)
"""


class Clock:
    """The shift of the wall clock of all programs that get this environment."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(struct.pack("=q", 0))
        self._file = open(path, "r+b", buffering=0)

    def close(self):
        self._file.close()

    def environment(self):
        return {"LD_PRELOAD": LIBRARY, "SHIFTED_CLOCK": str(self.path)}

    def set(self, seconds):
        self._file.seek(0)
        self._file.write(struct.pack("=q", seconds))


def set_forth_and_back(clock, *, between=lambda: time.sleep(0.3)):
    """Long enough for muster's loop to see each shift. No result depends on the time in between."""
    for shift in FORTH_AND_BACK:
        clock.set(shift)
        between()


class ClockTest(HardshipTest):
    def setUp(self):
        super().setUp()
        self.clock = Clock(self.dir / "shift")
        self.addCleanup(self.clock.close)

    def environment(self, **more):
        return super().environment(**self.clock.environment(), **more)

    def begin(self, *args, env=None):
        return self.start("--standalone", "--failure-report=report.json", *args, env=env)

    def plain(self, body):
        return ["--no-python", sys.executable, "-S", self.script("worker.py", body)]

    def read_lines(self, name):
        return self.read(name).split()


class Library(ClockTest):
    def test_workers_and_muster_see_the_shift(self):
        """Otherwise the other tests would prove nothing."""
        self.clock.set(HOURS_S)
        began = time.time()
        process = self.begin(*self.plain("import sys, time; print(time.time()); sys.exit(3)\n"))
        self.assertEqual(self.end_of(process), 1)
        self.assertGreater(float(self.read("out")), began + HOURS_S)
        died = self.report()["failures"][0]["died"]
        self.assertGreater(died, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began + HOURS_S - 1)))


class FileTimers(ClockTest):
    ON = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

    def test_a_timer_that_has_time_left_does_not_run_out(self):
        process = self.begin(*self.plain(TIMERS + """
ask(600, "long"); wait_until_read(); ready(); wait_for("go"); ask(-1, "long")
"""), env=self.ON)
        self.ready(1)
        set_forth_and_back(self.clock)
        (self.dir / "go").touch()
        self.assertEqual(self.end_of(process), 0)
        self.assertNotIn('"long"', self.read("err"))

    def test_a_timer_runs_out_in_its_time(self):
        """Not 3 h later: the shift comes after muster has read the request."""
        for shift in (HOURS_S, -HOURS_S):
            with self.subTest(shift):
                (self.dir / "ready").unlink(missing_ok=True)
                self.clock.set(0)
                process = self.begin(*self.plain(TIMERS + """
ask(2, "short"); wait_until_read(); ready(); time.sleep(1000)
"""), env=self.ON)
                self.ready(1)
                self.clock.set(shift)
                self.assertEqual(self.end_of(process, 30), 1)
                self.assertIn('timer "short" of local rank 0', self.read("err"))

    def test_a_timer_that_is_set_after_the_shift(self):
        for shift in (HOURS_S, -HOURS_S):
            with self.subTest(shift):
                (self.dir / "ready").unlink(missing_ok=True)
                (self.dir / "go").unlink(missing_ok=True)
                self.clock.set(0)
                process = self.begin(*self.plain(TIMERS + """
ready(); wait_for("go"); ask(600, "long"); ask(0.2, "short"); time.sleep(1000)
"""), env=self.ON)
                self.ready(1)
                self.clock.set(shift)
                (self.dir / "go").touch()
                self.assertEqual(self.end_of(process, 30), 1)
                self.assertIn('timer "short" of local rank 0', self.read("err"))


class Supervision(ClockTest):
    def test_restarts(self):
        """The clock jumps in each attempt. All restarts come, and each attempt is in the report."""
        process = self.begin("--max-restarts=6", *self.plain("""
import os, sys, time
n = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(n, file=open("ready", "a"))
while not os.path.exists("go." + n): time.sleep(0.01)
sys.exit(int(n) + 10)
"""))
        for attempt, shift in enumerate(FORTH_AND_BACK * 2 + (0,)):
            self.ready(attempt + 1)
            self.clock.set(shift)
            (self.dir / f"go.{attempt}").touch()
        self.assertEqual(self.end_of(process), 1)
        report = self.report()
        self.assertEqual([one["exitcode"] for one in report["earlier_attempts"]], [10, 11, 12, 13, 14, 15])
        self.assertEqual(report["failures"][0]["exitcode"], 16)

    def test_the_hang_timeout(self):
        """A worker that works is no hang, whatever the clock shows; one that stands still is found."""
        process = self.begin("--hang-timeout=4", "--log-dir=logs", *self.plain("""
import os, time
print("x", file=open("ready", "a"), flush=True)
while not os.path.exists("go"): sum(range(1000))
print("x", file=open("ready", "a"), flush=True)
time.sleep(1000)
"""), env={"PATH": str(self.dir)})
        self.ready(1)
        set_forth_and_back(self.clock, between=lambda: time.sleep(0.5))
        self.assertNotIn("hangs", self.read("err"))
        (self.dir / "go").touch()
        self.ready(2)
        set_forth_and_back(self.clock)
        self.assertEqual(self.end_of(process, 60), 1)
        found = re.search(r"it hung: no output and no CPU time for ([\d.]+) s", self.read("err"))
        self.assertTrue(found, self.read("err"))
        self.assertTrue(4 <= float(found[1]) < 60, found[0])

    def begin_stop(self, timeout_s, text, has_arrived):
        """Starts a worker, and sends SIGTERM. When it has arrived, the clock is set."""
        process = self.begin("--no-python", f"--shutdown-timeout={timeout_s}", self.script("worker.sh", text))
        self.ready(1)
        self.terminated_at = time.monotonic()
        process.terminate()
        wait_for(has_arrived, "the signal to arrive")
        set_forth_and_back(self.clock, between=lambda: time.sleep(0.1))
        self.clock.set(HOURS_S)
        return process

    def test_the_time_to_save(self):
        """It is longer than this test, and shorter than the shift of the clock."""
        process = self.begin_stop(1000, """#!/bin/sh
trap 'echo $LOCAL_RANK >> stopping; until [ -e save ]; do sleep 0.02; done; touch saved; exit 0' TERM
echo $LOCAL_RANK >> ready
while :; do sleep 0.02; done
""", lambda: self.read("stopping"))
        (self.dir / "save").touch()
        self.assertEqual(self.end_of(process, 30), 1)
        self.assertTrue((self.dir / "saved").exists())

    def test_the_shutdown_timeout(self):
        """A worker that does not end is killed after it."""
        process = self.begin_stop(5, """#!/bin/sh
trap '' TERM
echo $LOCAL_RANK >> ready
while :; do sleep 0.02; done
""", lambda: "closing signal SIGTERM" in self.read("err"))
        self.assertEqual(self.end_of(process, 30), 1)
        self.assertGreater(time.monotonic() - self.terminated_at, 4.9)
        failures = {one["rank"]: one for one in self.report()["failures"]}
        self.assertEqual((failures[0]["signal"], failures[0]["victim"]), ("SIGKILL", True))

    def test_an_agent_that_is_stopped_is_not_lost(self):
        process = self.begin(*self.plain("""
import os, time
print("x", file=open("ready", "a"))
while not os.path.exists("go"): time.sleep(0.01)
"""))
        self.ready(1)
        agent = self.victim(process, "agent")
        agent.send_signal(signal.SIGSTOP)
        set_forth_and_back(self.clock)
        agent.send_signal(signal.SIGCONT)
        (self.dir / "go").touch()
        self.assertEqual(self.end_of(process), 0)


class Reports(ClockTest):
    """Rank 0 fails first. Rank 1 is stopped for it, and writes an error file with its own clock before it ends."""
    WORKER = """
import json, os, signal, sys, time
def fail(code):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": f"rank {os.environ['RANK']}", "extraInfo": {
            "py_callstack": "", "timestamp": str(int(time.time()))}}}, file)
    os._exit(code)
def when_stopped(*_):
    print("x", file=open("stopped", "a"))
    while not os.path.exists("end"): time.sleep(0.01)
    fail(4)
signal.signal(signal.SIGTERM, when_stopped)
print("x", file=open("ready", "a"))
while not (os.environ["RANK"] == "0" and os.path.exists("go")): time.sleep(0.01)
fail(3)
"""

    def fail_with(self, at_failure, at_end):
        """The clock's shift when rank 0 fails, and when rank 1 does; it is 0 when the attempt begins."""
        for name in ("ready", "stopped", "go", "end"):
            (self.dir / name).unlink(missing_ok=True)
        self.clock.set(0)
        process = self.begin("--nproc-per-node=2", *self.plain(self.WORKER))
        self.ready(2)
        self.clock.set(at_failure)
        (self.dir / "go").touch()
        wait_for(lambda: self.read("stopped"), "rank 1 to be stopped")
        self.clock.set(at_end)
        (self.dir / "end").touch()
        self.assertEqual(self.end_of(process), 1)
        return self.report()

    def test_the_first_failure_stays_the_first(self):
        for at_failure in FORTH_AND_BACK:
            for at_end in FORTH_AND_BACK:
                with self.subTest(at_failure=at_failure, at_end=at_end):
                    report = self.fail_with(at_failure, at_end)
                    self.assertEqual(report["first_failure"], 0)
                    self.assertEqual([(one["rank"], one["victim"]) for one in report["failures"]],
                                     [(0, False), (1, True)])
                    self.assertRegex(self.read("err"), r"(?s)Root Cause \(first observed failure\):\n\[0\]:.*?rank      : 0 ")

    def test_the_order_of_failures_without_error_files(self):
        """Both fail by themselves, the second one after the clock was set back."""
        for shift in (-HOURS_S, HOURS_S):
            with self.subTest(shift):
                for name in ("ready", "go.0", "go.1"):
                    (self.dir / name).unlink(missing_ok=True)
                self.clock.set(0)
                process = self.begin("--nproc-per-node=2", *self.plain("""
import os, signal, sys, time
rank = os.environ["RANK"]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("x", file=open("ready", "a"))
while not os.path.exists("go." + rank): time.sleep(0.01)
os.abort() if rank == "1" else sys.exit(3)
"""))
                self.ready(2)
                (self.dir / "go.0").touch()
                wait_for(lambda: "failed (exitcode: 3)" in self.read("err"), "the first failure")
                self.clock.set(shift)
                (self.dir / "go.1").touch()
                self.assertEqual(self.end_of(process), 1)
                report = self.report()
                self.assertEqual(report["first_failure"], 0)
                self.assertEqual([(one["rank"], one["exitcode"]) for one in report["failures"]], [(0, 3), (1, -6)])


class NodesTest(MusterdTest):
    """Two nodes and musterd: leases, keep-alives and generations do not depend on the wall clock."""

    def setUp(self):
        self.clock = None
        super().setUp()

    def environment(self, **more):
        if self.clock is None:
            self.clock = Clock(self.dir / "shift")
            self.addCleanup(self.clock.close)
        return super().environment(**self.clock.environment(), **more)

    def check_undisturbed(self, starts):
        self.assertEqual(len(self.starts()), starts)
        self.assertNotIn("node_lost", self.all_output())
        self.tell("finish")
        self.ends(a=0, b=0)


class Leases(NodesTest):
    lease_s = SHORT_LEASE_S  # Each shift lasts for longer.

    def test_leases(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        set_forth_and_back(self.clock, between=lambda: time.sleep(1.5 * self.lease_s))
        self.check_undisturbed(2)

    def test_an_agent_that_hosts(self):
        self.stop_musterd()
        self.conf = f"lease={self.lease_s},last_call_timeout=3"
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        set_forth_and_back(self.clock, between=lambda: time.sleep(1.5 * self.lease_s))
        self.check_undisturbed(2)


class Nodes(NodesTest):
    def test_a_restart_after_the_clock_was_set_back(self):
        for tag in "ab":
            self.node(tag, 2, "--max-restarts=2")
        self.round_of(2)
        for number, shift in enumerate((-HOURS_S, HOURS_S), 1):
            self.clock.set(shift)
            self.tell("exit.b", "7")
            entries = self.round_of(2, after=2 * number, nodes="ab")
            self.assertEqual({entry["TORCHELASTIC_RESTART_COUNT"] for entry in entries}, {str(number)})
        self.check_undisturbed(6)

    def test_a_musterd_that_begins_again_after_the_clock_was_set_back(self):
        for tag in "ab":
            self.node(tag, 2)
        self.round_of(2)
        self.clock.set(-HOURS_S)
        self.stop_musterd()
        self.says("ab", "lost the rendezvous")
        self.start_musterd()
        wait_for(lambda: " nodes=2 restarts=" in self.read(f"err.musterd{self.musterds}"), "the round to be resumed")
        self.check_undisturbed(2)


if __name__ == "__main__":
    if not os.path.exists(LIBRARY):
        skip_all(f"MUSTER_SHIFTED_CLOCK={LIBRARY} is not there")
    if not os.access(MUSTERD, os.X_OK):
        skip_all(f"MUSTERD_BIN={MUSTERD} is not there")
    sys.exit(main())
