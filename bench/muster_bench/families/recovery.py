"""Four nodes, and one of them, or one of its workers, is gone: when do the others work again?

Four agents on this machine with --nnodes=3:4 and the default settings of both launchers, each with
one worker. The first hosts the rendezvous; it is the last agent, or its worker, that goes.
"""
import contextlib
import os
import signal
import socket
import time

from ..command import Command, descendants
from ..context import line
from ..interleave import interleave
from ..model import MUSTER, PEER, MeasureError, Quantity, Target, TooSlow
from ..peers import Peers

NAME = "recovery"
ABOUT = "4 nodes lose one, or a worker fails: until the others' workers run again"
ORDER = 75

NODES = 4
START_LIMIT_S = 60.0
LIMIT_S = 120.0  # torchrun: 15 s until a node counts as dead, 30 s of last call.
QUICK_LIMIT_S = 20.0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def lines_of(bench, mode):
    """{role: command line of an agent without its endpoint, or the reason that there is none}."""
    program = bench.programs.native("note_time")
    if not program:
        return {role: program.why_not for role in (MUSTER, PEER)}
    words = [f"--nnodes={NODES - 1}:{NODES}", "--nproc-per-node=1", "--max-restarts=3",
             "--rdzv-backend=c10d", "--rdzv-id=bench", "--local-addr=127.0.0.1", "{endpoint}",
             "--no-python", program.path, mode]
    return {MUSTER: line(bench.programs.muster, words), PEER: line(bench.programs.torchrun, words)}


class Job:
    """Four agents, their workers in main. Use as a context: nothing is left afterwards."""

    def __init__(self, argv, bench):
        endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
        self.argv = [endpoint if word == "{endpoint}" else word for word in argv]
        self.bench = bench
        self.processes = set()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.peers = stack.enter_context(Peers())
            environment = {"MUSTER_BENCH_PEERS": self.peers.path}
            # Last in, first out: what an agent leaves behind is ended after the agents.
            stack.callback(self._end_left)
            self.agents = []
            for index in range(NODES):
                self.agents.append(stack.enter_context(
                    Command(self.argv, environment=environment, limit_s=START_LIMIT_S)))
                if index == 0:
                    self._wait_for_host()
            for agent in self.agents:
                agent.wait_for_mains(1)
                self.processes.update([agent.pid, *descendants(agent.pid)])
            time.sleep(self.bench.settle_s())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            self.processes.update(descendants(agent.pid))
        self._stack.close()

    def _wait_for_host(self):
        """The first one is to be the host, whoever is quicker."""
        port = int(self.argv[[word.startswith("--rdzv-endpoint") for word in self.argv].index(True)]
                   .rpartition(":")[2])
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.02)
        raise MeasureError(f"its rendezvous did not listen within {START_LIMIT_S:g} s"
                           f"{self.agents[0].tail()}")

    def _end_left(self):
        """A worker whose agent was killed may have gone on. A process id that is in use by somebody
        else by now is not ours: it has no such environment."""
        for pid in self.processes:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                if self.peers.path.encode() in file.read():
                    os.kill(pid, signal.SIGKILL)

    def worker(self, index):
        return self.agents[index].mains()[0].pid

    def recovered_ns(self, agents, limit_s, what):
        """When the last of these agents' next workers was in main."""
        latest = 0
        until_s = time.monotonic() + limit_s
        for agent in agents:
            agent.deadline_s = until_s
            try:
                agent.wait_for(what, lambda notes: len(mains(notes)) > 1)
            except MeasureError as error:
                if agent.end_ns is not None:
                    raise
                raise TooSlow(f"{what}: within {limit_s:g} s the workers of the others were not "
                              "started again") from error
            latest = max(latest, mains(agent.notes)[1].at_ns)
        return latest


def mains(notes):
    """A lost node costs muster's job no restart: by their order, not by their restart count."""
    return sorted((note for note in notes if note.what == "main"), key=lambda note: note.at_ns)


def limit_s(bench):
    return QUICK_LIMIT_S if bench.quick else LIMIT_S


def kill_agent(bench, argv):
    with Job(argv, bench) as job:
        begin_ns = time.monotonic_ns()
        os.kill(job.agents[-1].pid, signal.SIGKILL)
        end_ns = job.recovered_ns(job.agents[:-1], limit_s(bench), "kill -9 of an agent")
    return {"recovery.kill_agent_s": (end_ns - begin_ns) / 1e9}


def signal_node(agent, number):
    """All that is below the agent, too. Returns when it began."""
    whole = [agent.pid, *descendants(agent.pid)]
    begin_ns = time.monotonic_ns()
    for pid in whole:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return begin_ns


def vanish(bench, argv):
    with Job(argv, bench) as job:
        begin_ns = signal_node(job.agents[-1], signal.SIGSTOP)
        end_ns = job.recovered_ns(job.agents[:-1], limit_s(bench), "a node that is silent")
    return {"recovery.vanished_node_s": (end_ns - begin_ns) / 1e9}


def kill_node(bench, argv):
    with Job(argv, bench) as job:
        require_connected(job)
        begin_ns = signal_node(job.agents[-1], signal.SIGKILL)
        end_ns = job.recovered_ns(job.agents[:-1], limit_s(bench), "kill -9 of a node's processes")
    return {"recovery.kill_node_s": (end_ns - begin_ns) / 1e9}


def worker_failure(bench, argv):
    with Job(argv, bench) as job:
        require_connected(job)
        begin_ns = time.monotonic_ns()
        job.peers.fail(job.worker(-1))
        end_ns = job.recovered_ns(job.agents, limit_s(bench), "a worker's failure")
    return {"recovery.worker_failure_s": (end_ns - begin_ns) / 1e9}


def require_connected(job):
    if not job.peers.wait_for([job.worker(index) for index in range(NODES)], START_LIMIT_S):
        raise MeasureError("a worker that was in main is not connected to its peers")


MEASURED = (
    (Quantity("recovery.kill_agent_s", "s",
              "kill -9 of one of 4 agents, whose workers' peers do not notice (NCCL's, in a "
              "collective), until the last worker of the others is in main again",
              target=Target(1)), "hold", kill_agent),
    (Quantity("recovery.kill_node_s", "s",
              "kill -9 of all processes of one of 4 nodes, the others' workers fail at once "
              "(gloo's do), until their last worker is in main again", target=Target(1)),
     "peers", kill_node),
    (Quantity("recovery.vanished_node_s", "s",
              "all processes of one of 4 nodes are stopped, its connections stay open, as when a "
              "host is gone; nobody's peers notice; until the others' last worker is in main again",
              target=Target(6)), "hold", vanish),
    (Quantity("recovery.worker_failure_s", "s",
              "a worker of 4 nodes fails, and with it those that wait for it, until the last "
              "worker is in main again"), "peers", worker_failure),
)


def measure(bench):
    rows = []
    for quantity, mode, sample in MEASURED:
        rows += interleave(
            [quantity], bench.contenders(lines_of(bench, mode),
                                         lambda argv, one=sample: one(bench, argv), fast=3),
            bench.rounds(2), bench.say)
    return rows
