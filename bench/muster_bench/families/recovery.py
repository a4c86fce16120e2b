"""Four nodes lose one of them, or one of its workers fails: measures when the others work again.

The job has four agents on this machine, with one worker each, with --nnodes=3:4 and otherwise the
default settings of the launcher. There are two kinds of jobs. Either the first agent hosts the
rendezvous, and the last agent or its worker is lost. Or a separate server hosts the rendezvous (a
musterd, or torch's store for torchrun), and any agent may be lost, also the one with rank 0.
"""
import contextlib
import dataclasses
import os
import signal
import socket
import time
import typing

from ..command import Command, descendants
from ..context import line
from ..interleave import interleave
from ..model import MUSTER, PEER, Incapable, MeasureError, Quantity, Target, TooSlow
from ..peers import Peers
from ..programs import ROOT
from ..server import Server

NAME = "recovery"
ABOUT = "4 nodes lose one, or a worker fails: until the others' workers run again"
ORDER = 75

NODES = 4
START_LIMIT_S = 60.0
LIMIT_S = 120.0  # torchrun needs 15 s until a node counts as dead, and 30 s of last call.
QUICK_LIMIT_S = 20.0


@dataclasses.dataclass(frozen=True)
class Launch:
    """The command lines of a job of four agents."""
    agent: list  # The command line of an agent, with "{endpoint}" in place of its endpoint.
    host: list | None = None  # The server that hosts the rendezvous; None: the first agent does.


def launches(bench, mode, with_server):
    """Returns {role: Launch, or the reason why there is none}."""
    worker = bench.programs.native("note_time")
    if not worker:
        return {role: worker.why_not for role in (MUSTER, PEER)}
    words = [f"--nnodes={NODES - 1}:{NODES}", "--nproc-per-node=1", "--max-restarts=3",
             "--rdzv-backend=c10d", "--rdzv-id=bench", "--local-addr=127.0.0.1", "{endpoint}",
             "--no-python", worker.path, mode]
    programs = bench.programs
    store = ROOT / "bench" / "native" / "torch_store_server.py"
    return {
        MUSTER: launch_of(programs.muster, words, with_server and
                          (programs.musterd, ["--bind", "127.0.0.1", "--port", "0"])),
        PEER: launch_of(programs.torchrun, words, with_server and (programs.python, [store])),
    }


def launch_of(launcher, words, server):
    agent = line(launcher, words)
    host = line(*server) if server else None
    reason = next((one for one in (agent, host) if isinstance(one, str)), None)
    return reason or Launch(agent, host)


class Job:
    """Four agents whose workers have reached main.

    It is a context manager. At the end of the context, no process of the job is left.
    """

    def __init__(self, launch, bench):
        self.launch = launch
        self.bench = bench
        self.processes = set()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            if self.launch.host:
                port = stack.enter_context(Server(self.launch.host)).port
            else:
                port = free_port()
            argv = [f"--rdzv-endpoint=127.0.0.1:{port}" if word == "{endpoint}" else word
                    for word in self.launch.agent]
            self.peers = stack.enter_context(Peers())
            environment = {"MUSTER_BENCH_PEERS": self.peers.path}
            # The exit stack runs in reverse order: this callback ends what the agents leave behind,
            # after the agents have ended.
            stack.callback(self._end_left)
            self.agents = []
            for index in range(NODES):
                self.agents.append(stack.enter_context(
                    Command(argv, environment=environment, limit_s=START_LIMIT_S)))
                if index == 0 and not self.launch.host:
                    self._wait_for_host(port)
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

    def _wait_for_host(self, port):
        """Waits until the first agent listens, so that no other agent becomes the host."""
        if not listens(("127.0.0.1", port), time.monotonic() + START_LIMIT_S):
            raise MeasureError(f"its rendezvous did not listen within {START_LIMIT_S:g} s"
                               f"{self.agents[0].tail()}")

    def _end_left(self):
        """Kills workers that have survived their agent.

        If the system has given a pid to another process by now, that process has no such
        environment and is left alone.
        """
        for pid in self.processes:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
                if self.peers.path.encode() in file.read():
                    os.kill(pid, signal.SIGKILL)

    def with_rank(self, rank):
        """Returns the agent whose worker has this rank."""
        ranks = [environment_of(agent.mains()[0].pid).get("RANK") for agent in self.agents]
        if ranks.count(str(rank)) != 1:
            raise MeasureError(f"its workers' ranks are {ranks}")
        return self.agents[ranks.index(str(rank))]

    def connect(self):
        """Waits until every worker is connected to its peers."""
        pids = [agent.mains()[0].pid for agent in self.agents]
        if not self.peers.wait_for(pids, START_LIMIT_S):
            missing = [agent for agent, pid in zip(self.agents, pids)
                       if not self.peers.is_connected(pid)]
            raise MeasureError(f"{len(missing)} of {NODES} workers that were in main are not "
                               f"connected to their peers{missing[0].tail() if missing else ''}")

    def recovered_ns(self, without, what, lost_store=None):
        """Waits for the next workers of all agents except `without`, and returns when the last of
        them was in main. Each worker must have been given a store that listens and is not
        `lost_store`. Otherwise this raises an error."""
        latest = 0
        limit_s = QUICK_LIMIT_S if self.bench.quick else LIMIT_S
        until_s = time.monotonic() + limit_s
        others = [agent for agent in self.agents if agent is not without]
        for agent in others:
            agent.deadline_s = until_s
            try:
                agent.wait_for(what, lambda notes: len(mains(notes)) > 1)
            except MeasureError as error:
                if agent.end_ns is not None:
                    raise
                raise TooSlow(f"{what}: within {limit_s:g} s the workers of the others were not "
                              "started again") from error
            latest = max(latest, mains(agent.notes)[1].at_ns)
        for agent in others:
            store = store_of(mains(agent.notes)[-1].pid)
            if store and store == lost_store:
                raise Incapable(f"{what}: the workers of the others were started again, but not "
                                "all can meet: some are told to do so in the store of the node "
                                "that is gone (MASTER_ADDR, MASTER_PORT)")
            if store and not listens(store, until_s):
                raise TooSlow(f"{what}: within {limit_s:g} s nothing listened at the MASTER_ADDR "
                              "and MASTER_PORT of a worker that was started again")
        return latest


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def listens(place, until_s):
    """Returns whether something listens at (host, port) before the time `until_s`."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(place, 1):
            return True
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)


def environment_of(pid):
    """Returns the environment with which a process was started."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = file.read().decode(errors="replace").split("\0")
    except OSError as error:
        raise MeasureError(f"a worker that was in main is gone: {error}") from error
    return dict(one.partition("=")[::2] for one in found if "=" in one)


def store_of(pid):
    """Returns (host, port) of a worker's store, or None if the workers themselves host it."""
    environment = environment_of(pid)
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    return environment["MASTER_ADDR"], int(environment["MASTER_PORT"])


def store_at(agent):
    """Returns the workers' store that is lost with this agent, or None if the agent hosts none.

    The agent whose worker has rank 0 hosts the store.
    """
    pid = agent.mains()[0].pid
    return store_of(pid) if environment_of(pid).get("RANK") == "0" else None


def mains(notes):
    """Returns the notes of workers in main, by time.

    The restart count does not separate the attempts, because muster does not count the loss of a
    node as a restart.
    """
    return sorted((note for note in notes if note.what == "main"), key=lambda note: note.at_ns)


# --- failures of the job: each returns the times of the failure and of the recovery ---------------


def last(job):
    """Returns the agent that was started last. It is not the host."""
    return job.agents[-1]


def rank_0(job):
    return job.with_rank(0)


def last_rank(job):
    return job.with_rank(NODES - 1)


def kill_agent(job, victim):
    return lose(job, victim, [victim.pid], signal.SIGKILL, "kill -9 of an agent")


def kill_node(job, victim):
    job.connect()
    return lose(job, victim, node(victim), signal.SIGKILL, "kill -9 of a node's processes")


def vanish(job, victim):
    return lose(job, victim, node(victim), signal.SIGSTOP, "a node that is silent")


def fail_worker(job, victim):
    job.connect()
    begin_ns = time.monotonic_ns()
    job.peers.fail(victim.mains()[0].pid)
    return begin_ns, job.recovered_ns(None, "a worker's failure")


def node(agent):
    return [agent.pid, *descendants(agent.pid)]


def lose(job, victim, pids, number, what):
    lost_store = store_at(victim)
    begin_ns = time.monotonic_ns()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return begin_ns, job.recovered_ns(victim, what, lost_store)


@dataclasses.dataclass(frozen=True)
class Measured:
    quantity: Quantity
    mode: str  # The mode of note_time.
    happens: typing.Callable  # The failure: happens(job, victim).
    to: typing.Callable = last  # Chooses the victim: to(job).
    with_server: bool = False  # Whether a server hosts the rendezvous, not the first agent.


MEASURED = (
    Measured(Quantity("recovery.kill_agent_s", "s",
                      "kill -9 of one of 4 agents, whose workers' peers do not notice (NCCL's, in "
                      "a collective), until the last worker of the others is in main again",
                      target=Target(1)), "hold", kill_agent),
    Measured(Quantity("recovery.kill_node_s", "s",
                      "kill -9 of all processes of one of 4 nodes, the others' workers fail at "
                      "once (gloo's do), until their last worker is in main again",
                      target=Target(1)), "peers", kill_node),
    Measured(Quantity("recovery.vanished_node_s", "s",
                      "all processes of one of 4 nodes are stopped, its connections stay open, as "
                      "when a host is gone; the other workers do not notice; until their last one "
                      "is in main again", target=Target(6)), "hold", vanish),
    Measured(Quantity("recovery.worker_failure_s", "s",
                      "a worker of 4 nodes fails, and with it those that wait for it, until the "
                      "last worker is in main again"), "peers", fail_worker),
    Measured(Quantity("recovery.musterd.kill_rank0_s", "s",
                      "with musterd (torchrun: with torch's store in a process of its own): "
                      "kill_node_s, of the node that has rank 0 and the workers' store",
                      target=Target(1)), "peers", kill_node, rank_0, True),
    Measured(Quantity("recovery.musterd.kill_node_s", "s",
                      "the same, of the node that has the last rank", target=Target(1)),
             "peers", kill_node, last_rank, True),
    Measured(Quantity("recovery.musterd.vanished_rank0_s", "s",
                      "with musterd: vanished_node_s, of the node that has rank 0 and the workers' "
                      "store", target=Target(6)), "hold", vanish, rank_0, True),
)


def sample(bench, one, launch):
    with Job(launch, bench) as job:
        begin_ns, end_ns = one.happens(job, one.to(job))
    return {one.quantity.name: (end_ns - begin_ns) / 1e9}


def measure(bench):
    rows = []
    for one in MEASURED:
        rows += interleave(
            [one.quantity],
            bench.contenders(launches(bench, one.mode, one.with_server),
                             lambda launch, one=one: sample(bench, one, launch), fast=3),
            bench.rounds(2), bench.say)
    return rows
