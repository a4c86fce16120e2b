"""The cost of watching a rendezvous: 4,096 nodes at a watched musterd, and at an unwatched one.

For the watched musterd, a browser has the page open, /metrics is scraped each second, and
`musterctl status --watch` runs. The unwatched musterd, with HTTP but without requests, is the
limit. There is no peer, because torchrun has no such page.
"""
import contextlib
import json
import pathlib
import socket
import subprocess
import tempfile
import time

from ..command import clean_environment
from ..interleave import Contender, interleave
from ..model import LIMIT, MUSTER, PEER, Incapable, MeasureError, Quantity, Target
from ..programs import ROOT, executable
from ..server import Server
from .musterd import Load

NAME = "watched"
ABOUT = "4,096 nodes at a musterd with its page open, /metrics scraped and musterctl status --watch"
ORDER = 76

WATCHERS = ROOT / "bench" / "native" / "watchers.py"
SKIPPED = 77
PATIENCE_S = 120.0
# idle_s: seconds of keep-alives after the last restart. The page is opened during this time.
USUAL = {"nodes": 4096, "restarts": 5, "idle_s": 12}
QUICK = {"nodes": 256, "restarts": 2, "idle_s": 8}


def quantities(count):
    who = f"{count:,} nodes at a musterd that is watched (page, /metrics, musterctl)"
    return [
        Quantity(f"watched.{count}.join_s", "s", f"{who} come at once, until the last knows its rank",
                 target=Target(1.05, LIMIT, or_equal=True)),
        Quantity(f"watched.{count}.restart_s", "s",
                 f"one of {who} fails and all join again, until the last knows its rank: median of its restarts",
                 target=Target(1.05, LIMIT, or_equal=True)),
        Quantity(f"watched.{count}.first_paint_s", "s",
                 f"the page is opened, with {who}, until the first paint", target=Target(1)),
        Quantity(f"watched.{count}.nodes_shown_s", "s", "the same, until its nodes are shown"),
    ]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Watchers:
    """The page, the scraper and musterctl, as a context manager."""

    def __init__(self, python, musterctl, port):
        self.python, self.musterctl, self.port = python, musterctl, port
        self.status = None

    def __enter__(self):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([self.python, WATCHERS, str(self.port)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors)
        if self.process.stdout.readline() != b"watching\n":
            status = self.process.wait()
            self.errors.seek(0)
            reason = self.errors.read().decode(errors="replace").strip()
            self.__exit__()
            raise (Incapable if status == SKIPPED else MeasureError)(f"watchers.py: {reason}")
        return self

    def follow(self, run):
        """Starts `musterctl status --watch` for the run."""
        self.status = subprocess.Popen(
            [self.musterctl, "status", "--watch", "--endpoint", f"127.0.0.1:{self.port}", run],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors,
            env=clean_environment())

    def paint(self):
        done = subprocess.run([self.python, WATCHERS, "--paint", str(self.port)], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        if done.returncode != 0:
            raise MeasureError(f"watchers.py --paint: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def require_alive(self):
        for name, process in (("watchers.py", self.process), ("musterctl status --watch", self.status)):
            if process is None or process.poll() is not None:
                raise MeasureError(f"{name} has ended before the measurement")

    def __exit__(self, *_):
        if self.status:
            self.status.terminate()
            self.status.wait()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class TestBed:
    def __init__(self, programs, sizes):
        self.musterd, self.python = programs.musterd.path, programs.python.path
        self.musterctl = pathlib.Path(self.musterd or "").parent / "musterctl"
        self.load, self.sizes = programs.native("musterd_load").path, sizes

    def sample(self, watched):
        sizes, port = self.sizes, free_port()
        argv = [self.musterd, "--bind", "127.0.0.1", "--port", 0, "--log-level", "error", "--http", port,
                "--lease-seconds", 30]
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Server(argv))
            watchers = watched and stack.enter_context(Watchers(self.python, self.musterctl, port))
            load = Load(self.load, server, "--nodes", sizes["nodes"], "--restarts", sizes["restarts"],
                        "--connecting", 2000, "--idle-seconds", sizes["idle_s"])
            found = {}
            try:
                if watched:
                    self.wait_for_round(port, load, 0)
                    watchers.follow(f"bench-{load.process.pid}-0")
                    self.wait_for_round(port, load, sizes["restarts"])
                    found = watchers.paint()
                    watchers.require_alive()
            finally:
                result = load.result()
            server.require_alive()
        restarts = sorted(result["restart_s"])
        named = {"join_s": result["join_s"], "restart_s": restarts[len(restarts) // 2]}
        if found:
            named |= {"first_paint_s": found["first_paint_s"], "nodes_shown_s": found["nodes_s"]}
        return {f"watched.{sizes['nodes']}.{key}": value for key, value in named.items()}

    def wait_for_round(self, port, load, number):
        """Waits for the round. Asks `musterctl status` four times a second."""
        run = f"bench-{load.process.pid}-0"
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            asked = subprocess.run([self.musterctl, "status", "--json", "--endpoint", f"127.0.0.1:{port}", run],
                                   capture_output=True, text=True)
            if asked.returncode == 0:
                status = json.loads(asked.stdout)
                if status["state"] == "running" and status["round"] >= number:
                    return
            if load.process.poll() is not None:
                return  # load.result() raises an error with the reason.
            time.sleep(0.25)
        raise MeasureError(f"round {number} of {run} was not complete within {PATIENCE_S:g} s")


def measure(bench):
    sizes = QUICK if bench.quick else USUAL
    programs = bench.programs
    test_bed = TestBed(programs, sizes)
    load = programs.native("musterd_load")
    musterctl = executable(test_bed.musterctl, "it is beside musterd")
    why_not = next((one.why_not for one in (programs.musterd, load, musterctl) if not one), "")
    no_python = why_not or programs.python.why_not
    contenders = [
        Contender(MUSTER, None if no_python else lambda: test_bed.sample(True), why_not=no_python),
        Contender(LIMIT, None if why_not else lambda: test_bed.sample(False), why_not=why_not),
        Contender(PEER, None, why_not="torchrun has nothing to look at"),
    ]
    return interleave(quantities(sizes["nodes"]), contenders, bench.rounds(5), bench.say)
