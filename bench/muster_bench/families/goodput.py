"""Six failures of a job of two nodes: measures how many steps the job has done in spite of them.

Each launcher gets the same failures at the same moments. A service manager, which this module plays,
starts an agent again that has ended, and kills what the agent has left, as systemd does.
"""
import contextlib
import dataclasses
import functools
import os
import pathlib
import random
import subprocess
import tempfile
import time

from .. import steps as arithmetic
from .. import wire
from ..command import clean_environment
from ..context import line
from ..interleave import Contender, interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity

NAME = "goodput"
ABOUT = "six failures of a job of 2 nodes: useful steps as a share of those without failures"
ORDER = 76

MINUTES = 10.0
QUICK_MINUTES = 1.0
SEED = 33
STARTS_AGAIN_S = 1.0  # A service manager waits for this time before it starts a program again.
NODE_IS_BACK_S = 5.0
HANG_S = 5  # --hang-timeout. The collectives' timeout, which torchrun's job relies on, is 10 s.
START_LIMIT_S = 180.0
PORT = 29400
NODES = ("a", "b")
HEAD = "head"  # The host of musterd. torchrun's rendezvous is hosted by the agent of node a.
WORKER = pathlib.Path(__file__).resolve().parents[2] / "native" / "goodput_steps.py"

KINDS = {
    "exception": "an exception in a worker",
    "worker_kill": "kill -9 of a worker",
    "agent_kill": "kill -9 of the agent of node b",
    "node_lost": f"node b is cut off and all its processes are killed; it is back after {NODE_IS_BACK_S:g} s",
    "hang": f"a worker stands still; found by --hang-timeout={HANG_S}, or by gloo's timeout of 10 s",
    "host_kill": "kill -9 of musterd; torchrun: of the agent of node a, which hosts the rendezvous",
}


@dataclasses.dataclass(frozen=True)
class Failure:
    at_s: float
    kind: str
    rank: int  # Of the worker that fails, for the kinds that are a worker's.


def plan(seed, seconds):
    """Returns one failure of each kind, each in its own sixth of the time, in a random order."""
    chance = random.Random(seed)
    kinds = list(KINDS)
    chance.shuffle(kinds)
    slot_s = seconds / len(kinds)
    # So at least 0.7 slots are between two failures, and half a slot is behind the last one.
    return [Failure((index + chance.uniform(0.2, 0.5)) * slot_s, kind, chance.randrange(2))
            for index, kind in enumerate(kinds)]


class Service:
    """A program on a host under a service manager."""

    def __init__(self, net, host, argv, folder, environment):
        self._net, self._host, self._environment = net, host, environment
        self._argv = net.on(host, argv)
        self._output = folder / f"{host}.log"
        self._start_s = 0.0  # When the program is to be started again, if it does not run.
        self.is_up = True  # Whether the host is there.
        self.process = None

    def look(self):
        """Starts the program if it is time."""
        if self.process is not None and self.process.poll() is not None:
            self.process = None
            self._net.kill_all(self._host)
            self._start_s = time.monotonic() + STARTS_AGAIN_S
        if self.process is None and self.is_up and time.monotonic() >= self._start_s:
            with open(self._output, "ab") as output:
                self.process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=output,
                                                stderr=output, env=self._environment, cwd="/")

    def kill(self):
        if self.process is not None:
            self.process.kill()

    def lose_host(self):
        self.is_up = False
        self._net.unplug(self._host)
        self._net.kill_all(self._host)

    def host_is_back(self):
        self._net.plug(self._host)
        self.is_up = True

    def end(self):
        self.is_up = False
        self._net.kill_all(self._host)
        if self.process is not None:
            self.process.wait()


@dataclasses.dataclass(frozen=True)
class Launch:
    """The command lines of a job."""
    agent: list  # Of an agent, without the arguments that differ between launchers.
    python: str  # Of the workers.
    host: list | None  # Of the server that hosts the rendezvous; None: the agent of node a does.


class Job:
    """A job of two nodes. It runs for a time, with failures, and is killed."""

    def __init__(self, launch, failures, seconds, folder, say):
        self._launch, self._failures, self._seconds = launch, failures, seconds
        self._folder, self._say = folder, say
        self._later = []  # [(second, what is then to be called)]

    def run(self):
        """Returns the steps."""
        with contextlib.ExitStack() as stack:
            net = stack.enter_context(wire.Wire((*NODES, HEAD)))
            environment = clean_environment(GLOO_SOCKET_IFNAME="eth0", PYTHON_EXEC=self._launch.python)
            services = {name: Service(net, name, argv, self._folder, environment)
                        for name, argv in self._lines(net.addresses).items()}
            for service in services.values():
                stack.callback(service.end)
            log = self._folder / "steps"
            self._wait_for_first_step(services, log)
            self._train(services, time.monotonic())
        return arithmetic.read_steps(log.read_text())

    def _wait_for_first_step(self, services, log):
        until_s = time.monotonic() + START_LIMIT_S
        while not log.exists() or not log.stat().st_size:
            if time.monotonic() > until_s:
                raise MeasureError(f"no step was done within {START_LIMIT_S:g} s{self._tail()}")
            self._look(services)

    def _train(self, services, begin_s):
        waiting = list(self._failures)
        while (now_s := time.monotonic() - begin_s) < self._seconds:
            self._look(services)
            if waiting and now_s >= waiting[0].at_s:
                self._fail(waiting.pop(0), services, now_s)
            for entry in [one for one in self._later if now_s >= one[0]]:
                self._later.remove(entry)
                entry[1]()

    @staticmethod
    def _look(services):
        for service in services.values():
            service.look()
        time.sleep(0.01)

    def _lines(self, addresses):
        """Returns {host: command line}. The host of the rendezvous comes first."""
        host = HEAD if self._launch.host else NODES[0]
        found = {}
        if self._launch.host:
            found[HEAD] = [*self._launch.host, "--bind", addresses[HEAD]]
        launcher, *options = self._launch.agent
        for name in NODES:
            found[name] = [launcher, f"--rdzv-endpoint={addresses[host]}:{PORT}",
                           f"--local-addr={addresses[name]}", *options, WORKER, self._folder]
        return found

    def _fail(self, failure, services, now_s):
        self._say(f"  {now_s:.1f} s: {failure.kind}")
        orders = {"exception": "raise", "worker_kill": "kill", "hang": "hang"}
        if word := orders.get(failure.kind):
            partial = self._folder / "order.partial"
            partial.write_text(word)
            partial.replace(self._folder / f"order.{failure.rank}")
        elif failure.kind == "agent_kill":
            services["b"].kill()
        elif failure.kind == "host_kill":
            services.get(HEAD, services["a"]).kill()
        else:
            services["b"].lose_host()
            self._later.append((now_s + NODE_IS_BACK_S, services["b"].host_is_back))

    def _tail(self):
        """Returns the last lines of the agents, for the text of an error."""
        texts = [(self._folder / f"{name}.log").read_text(errors="replace") for name in NODES
                 if (self._folder / f"{name}.log").exists()]
        lines = [one.strip() for text in texts for one in text.splitlines()[-3:] if one.strip()]
        return ": " + " | ".join(lines) if lines else ""


def launches(programs, state_dir):
    """Returns {role: Launch, or the reason why there is none}."""
    if reason := wire.why_not() or programs.python.why_not:
        return dict.fromkeys((MUSTER, PEER, LIMIT), reason)
    words = [f"--nnodes={len(NODES)}", "--nproc-per-node=1", "--max-restarts=100", "--rdzv-backend=c10d",
             "--rdzv-id=goodput"]
    ours = [*words, f"--hang-timeout={HANG_S}"]
    host = line(programs.musterd, ["--port", PORT, "--state-dir", state_dir])
    found = {}
    for role, agent, its_host in ((MUSTER, line(programs.muster, [*ours, "--warm"]), host),
                                  (PEER, line(programs.torchrun, words), None),
                                  (LIMIT, line(programs.muster, ours), host)):
        reason = next((one for one in (agent, its_host) if isinstance(one, str)), None)
        found[role] = reason or Launch(agent, programs.python.path, its_host)
    return found


class Measurement:
    """All jobs of one call of measure(): the one without failures, and a job of each launcher per
    round."""

    def __init__(self, bench):
        self._bench = bench
        self.seconds = 60 * (bench.minutes or (QUICK_MINUTES if bench.quick else MINUTES))
        self._rounds = {}  # Role -> how many jobs it has had.
        self._whole = None  # The steps of the job without failures.
        self.drawing = {"end": self.seconds, "lines": {}, "failures": []}
        self.notes = []

    def sample(self, role):
        if self._whole is None:
            self._bench.say("  the job without failures")
            # Without failures, muster with and without --warm and torchrun do the same.
            self._whole = self._job(role, [])
            self.drawing["lines"]["whole"] = arithmetic.progress(self._whole, self.seconds)
            self.notes.append(f"without failures: {arithmetic.kept(self._whole):,} steps in "
                              f"{self.seconds / 60:g} minutes")
        index = self._rounds[role] = self._rounds.get(role, -1) + 1
        failures = plan(SEED + index, self.seconds)
        steps = self._job(role, failures)
        if index == 0:
            self.drawing["lines"][role] = arithmetic.progress(steps, self.seconds)
            self.drawing["failures"] = [[one.at_s, one.kind] for one in failures]
        self.notes.append(f"{role}: {arithmetic.kept(steps):,} steps, and "
                          f"{arithmetic.done_again(steps):,} done again")
        nexts_s = [*(one.at_s for one in failures[1:]), self.seconds]
        pauses = {f"goodput.{one.kind}_s": arithmetic.pause_s(steps, one.at_s, next_s, self.seconds)
                  for one, next_s in zip(failures, nexts_s)}
        return {"goodput.share": arithmetic.share(steps, self._whole),
                **{name: pause_s for name, pause_s in pauses.items() if pause_s is not None}}

    def _job(self, role, failures):
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
            folder = pathlib.Path(name)
            launch = launches(self._bench.programs, folder / "state")[role]
            os.mkdir(folder / "state")
            return Job(launch, failures, self.seconds, folder, self._bench.say).run()


def measure(bench):
    measurement = Measurement(bench)
    quantities = [
        Quantity("goodput.share", "%",
                 f"steps of a job of 2 nodes with six failures in {measurement.seconds / 60:g} minutes, as "
                 "a share of those of a job without failures; muster with --warm, limit: muster "
                 "without it", "higher"),
        *(Quantity(f"goodput.{kind}_s", "s", f"{what}: the longest time without a step")
          for kind, what in KINDS.items()),
    ]
    contenders = [
        Contender(role, None, why_not=launch) if isinstance(launch, str) else
        Contender(role, functools.partial(measurement.sample, role))
        for role, launch in launches(bench.programs, "/").items()
    ]
    rows = interleave(quantities, contenders, bench.rounds(1), bench.say)
    for row in rows:
        for role, samples in row.samples.items():
            if not samples and rows[0].samples[role]:
                row.why[role] = "the failure came while the job stood still"
    rows[0].notes = measurement.notes
    rows[0].drawing = measurement.drawing if measurement.drawing["lines"] else {}
    return rows
