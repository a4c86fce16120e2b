"""musterd with many nodes and with its state on disk: a restart of musterd, keep-alives, durable
transitions, and a run that floods musterd.

The native program musterd_load simulates the nodes, which resume as agents do. There is no peer:
torchrun's nodes do not survive the loss of their store, and its store keeps nothing on disk.
"""
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

from ..interleave import Contender, interleave
from ..model import MUSTER, PEER, MeasureError, Quantity, Target
from ..programs import ROOT
from ..server import Server

NAME = "musterd"
ABOUT = "musterd killed under 4,096 nodes; keep-alives of 10,000; transitions on disk; a flood"
ORDER = 75

LIMIT_S = 240.0
FLOOD = ROOT / "bench" / "native" / "flood.py"


def quantities(sizes):
    resumed, runs, nodes_each = sizes["resume"], sizes["runs"], sizes["nodes_of_a_run"]
    found = [
        Quantity("musterd.resume_s", "s",
                 f"kill -9 of musterd under {resumed:,} connected nodes, its state in SQLite; it is "
                 "started again at once; until the last node has resumed",
                 target=Target(3)),
        Quantity("musterd.keep_alive_cpu_percent", "%",
                 f"{runs * nodes_each:,} nodes in {runs} runs that only keep alive: the server's "
                 "share of a core"),
        Quantity("musterd.transition_p99_ms", "ms",
                 "a failure is told → the other node hears of the restart, recorded in SQLite "
                 "(fsync): 99th percentile"),
        Quantity("musterd.transition_median_ms", "ms", "the same: the median"),
        Quantity("musterd.flood_longest_ms", "ms",
                 "another run's nodes flood: the longest time to the answer to a keep-alive",
                 target=Target(100)),
        Quantity("musterd.flood_median_ms", "ms", "the same: the median"),
    ]
    for count in sizes["on_disk"]:
        found += [
            Quantity(f"musterd.{count}.sqlite_join_ratio", "",
                     f"{count:,} nodes join, state in SQLite: times the time without a state "
                     "directory", target=Target(1.3)),
            Quantity(f"musterd.{count}.sqlite_restart_ratio", "",
                     f"one of {count:,} nodes fails and all join again: the same",
                     target=Target(1.3)),
        ]
    return found


USUAL = {"resume": 4096, "runs": 50, "nodes_of_a_run": 200, "idle_s": 20, "restarts": 300,
         "flood_s": 20, "on_disk": {1000: 8, 16384: 3}}
QUICK = {"resume": 256, "runs": 5, "nodes_of_a_run": 20, "idle_s": 2, "restarts": 20, "flood_s": 3,
         "on_disk": {100: 1}}  # on_disk: {nodes: how often they join in one sample}.


class Load:
    """A running musterd_load. Its result is the JSON that it prints."""

    def __init__(self, program, server, *words):
        self.process = subprocess.Popen(
            [str(word) for word in (program, "--port", server.port, "--pid", server.pid,
                                    "--limit-seconds", LIMIT_S, *words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self):
        try:
            out, err = self.process.communicate(timeout=2 * LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise MeasureError("musterd_load does not end") from None
        if self.process.returncode != 0:
            raise MeasureError(f"musterd_load: {err.strip()}")
        return json.loads(out)


class TestBed:
    """Takes the samples, at new servers with or without a state directory."""

    def __init__(self, musterd, load, sizes):
        self.musterd, self.load, self.sizes = musterd, load, sizes

    @contextlib.contextmanager
    def server(self, folder=None, port=0, *options):
        state = [f"--state-dir={folder}"] if folder else []
        argv = [self.musterd, "--bind", "127.0.0.1", "--port", port, "--log-level", "error", *state,
                *options]
        with Server(argv) as server:
            yield server

    def measure(self, *words, on_disk=True, options=()):
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, \
                self.server(folder if on_disk else None, 0, *options) as server:
            result = Load(self.load, server, *words).result()
            server.require_alive()
        return result

    def resume(self, nodes):
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
            return self.resume_at(folder, nodes)

    def resume_at(self, folder, nodes, options=(), words=()):
        """musterd_load kills the server. This method starts it again, with the same port, options
        and state directory, and returns the result of musterd_load."""
        with self.server(folder, 0, *options) as first:
            load = Load(self.load, first, "--nodes", nodes, "--connecting", 2000, "--kill", *words)
            again = {}

            def start_again():
                first.wait_for_end()
                if load.process.poll() is None:
                    again["context"] = self.server(folder, first.port, *options)
                    again["server"] = again["context"].__enter__()
            waiting = threading.Thread(target=start_again)
            waiting.start()
            try:
                return load.result()
            finally:
                if load.process.poll() not in (None, 0):
                    first.end()
                waiting.join()
                if "context" in again:
                    again["context"].__exit__(None, None, None)

    def flooded(self):
        with self.server() as server:
            flood = subprocess.Popen([sys.executable, FLOOD, str(server.port)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                flood.stdout.readline()
                result = Load(self.load, server, "--nodes", 64, "--idle-seconds",
                              self.sizes["flood_s"]).result()
                if flood.poll() is not None:
                    raise MeasureError("the flood has ended before the measurement")
            finally:
                flood.stdin.close()
                flood.wait()
                flood.stdout.close()
        return result

    def ratios(self, count, times):
        """Returns the ratios of the medians. Single samples differ too much: one join of 1,000
        nodes may take half as long again as the one before."""
        words = ("--nodes", count, "--restarts", 2, "--connecting", 2000)
        # One thread sends the keep-alives of all nodes. On a busy machine, it does not manage
        # 16,384 of them within 5 s.
        options = ["--lease-seconds=30"]
        taken = {True: [], False: []}
        for turn in range(times):
            for on_disk in (turn % 2 == 0, turn % 2 == 1):
                load = self.measure(*words, options=options, on_disk=on_disk)
                taken[on_disk].append((load["join_s"], load["restart_s"][-1]))
        disk, memory = ([statistics.median(column) for column in zip(*taken[on_disk])]
                        for on_disk in (True, False))
        return {f"musterd.{count}.sqlite_join_ratio": disk[0] / memory[0],
                f"musterd.{count}.sqlite_restart_ratio": disk[1] / memory[1]}

    def sample(self):
        sizes = self.sizes
        found = {"musterd.resume_s": self.resume(sizes["resume"])["resume_s"]}
        idle = self.measure("--runs", sizes["runs"], "--nodes", sizes["nodes_of_a_run"],
                            "--idle-seconds", sizes["idle_s"])
        found["musterd.keep_alive_cpu_percent"] = idle["idle_cpu_share"] * 100
        transitions = self.measure("--nodes", 2, "--restarts", sizes["restarts"])["acknowledged"]
        found["musterd.transition_p99_ms"] = transitions["p99"] * 1e3
        found["musterd.transition_median_ms"] = transitions["median"] * 1e3
        answers = self.flooded()["answers"]
        found["musterd.flood_longest_ms"] = answers["max"] * 1e3
        found["musterd.flood_median_ms"] = answers["median"] * 1e3
        for count, times in sizes["on_disk"].items():
            found |= self.ratios(count, times)
        return found


def measure(bench):
    sizes = QUICK if bench.quick else USUAL
    load = bench.programs.native("musterd_load")
    musterd = bench.programs.musterd
    why_not = next((one.why_not for one in (musterd, load) if not one), "")
    test_bed = TestBed(pathlib.Path(musterd.path or ""), pathlib.Path(load.path or ""), sizes)
    contenders = [
        Contender(MUSTER, None if why_not else test_bed.sample, why_not=why_not),
        Contender(PEER, None, why_not="its nodes do not survive the loss of their store"),
    ]
    return interleave(quantities(sizes), contenders, bench.rounds(3), bench.say)
