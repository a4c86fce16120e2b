"""The store under load: musterd, PyTorch's own server and a bare epoll server.

All three stay up for the whole family and get the same load in turn; the load is made by the
native program store_load, which prints one JSON object.
"""
import contextlib
import dataclasses
import json
import socket
import statistics
import subprocess
import time

from ..idle_connections import open_connections
from ..interleave import Contender, interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target
from ..programs import ROOT
from ..server import Server
from .memory import kib

NAME = "store"
ABOUT = "the store: rate, p99 and CPU at 1, 64, 1,000 connections; connect, wake, barrier, idle"
ORDER = 60

LOAD_LIMIT_S = 400.0
IDLE_CONNECTIONS = 10_000
IDLE_LIMIT_S = 60.0
LOOKUPS = 100


@dataclasses.dataclass(frozen=True)
class Workload:
    """One run of store_load. `fields`: quantity -> its field in what store_load printed."""
    words: tuple[str, ...]
    fields: dict[Quantity, str]
    cpu: Quantity | None = None  # The server's CPU time for each request.
    rounds: int = 5
    fast: int = 1


def getset(connections, seconds, **more):
    name = f"store.{connections}"
    near_limit = Target(0.95, of=LIMIT, or_equal=True) if connections == 64 else None
    who = f"{connections:,} connection{'s' if connections > 1 else ''}"
    return Workload(
        ("--mode", "getset", "--connections", str(connections), "--seconds", str(seconds)),
        {Quantity(f"{name}.getset_ops_s", "op/s", f"{who}: SET and GET in turn, each is one op",
                  better="higher", target=near_limit): "ops_per_s",
         Quantity(f"{name}.p99_us", "µs", f"{who}: 99 of 100 answers came within"): "p99_us"},
        cpu=Quantity(f"{name}.server_cpu_us", "µs", f"{who}: the server's CPU time for each op"),
        **more)


def moment(name, mode, field, unit, what, target=None, connections=1000, **more):
    return Workload(("--mode", mode, "--connections", str(connections)),
                    {Quantity(name, unit, what, target=target): field}, **more)


# torch's server looks up the name of each client that connects: where a resolver lets one look-up
# in fifty run into its 5 s, connecting 1,000 takes it 100 s. So it gets one sample here, the others 3.
THOUSAND = {"rounds": 1, "fast": 3}
WORKLOADS = (
    getset(1, 1),
    getset(64, 2),
    getset(1000, 2, **THOUSAND),
    moment("store.connect_1000_s", "connect", "seconds", "s",
           "1,000 clients connect at once, until the last has its first answer",
           target=Target(0.2), **THOUSAND),
    moment("store.wake_1000_ms", "wake", "milliseconds", "ms",
           "a SET that 1,000 clients wait for, until the last knows", **THOUSAND),
    moment("store.barrier_1000_ms", "barrier", "milliseconds", "ms",
           "1,000 clients: ADD, the last one SETs, all WAIT", **THOUSAND),
    moment("store.value_64mb_ms", "value", "milliseconds", "ms",
           "SET and GET of a 64 MB value by one client", connections=1),
)


def lines_of(bench):
    programs = bench.programs
    bare = programs.native("bare_epoll_server")
    script = ROOT / "bench" / "native" / "torch_store_server.py"
    return {
        MUSTER: [programs.musterd.path, "--bind", "127.0.0.1", "--port", "0"]
        if programs.musterd else programs.musterd.why_not,
        PEER: [programs.python.path, script] if programs.python else programs.python.why_not,
        LIMIT: [bare.path] if bare else bare.why_not,
    }


def run_load(load, port, words):
    argv = [load, "--port", str(port), *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LOAD_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise MeasureError(f"{' '.join(words)}: not done within {LOAD_LIMIT_S:g} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise MeasureError(f"{' '.join(words)}: store_load ended with {done.returncode}: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def sample(load, workload, server):
    before_ns = server.cpu_ns()
    result = run_load(load, server.port, workload.words)
    server.require_alive()
    if any(result.get(field) is None for field in workload.fields.values()):
        return {}  # This server cannot do that: the bare one knows no waiting.
    values = {quantity.name: result[field] for quantity, field in workload.fields.items()}
    if workload.cpu:
        values[workload.cpu.name] = (server.cpu_ns() - before_ns) / 1e3 / result["ops"]
    return values


def idle_sample(bench, argv):
    """In a server of its own: one that was busy has memory to spare."""
    count, limit_s = IDLE_CONNECTIONS, IDLE_LIMIT_S / (6 if bench.quick else 1)

    def anonymous_kib(server):
        return sum(kib(pid, "smaps_rollup", "Anonymous") for pid in server.pids())

    with Server(argv) as server:
        before = anonymous_kib(server)
        with open_connections(server.port, count, limit_s):
            after = anonymous_kib(server)
        return {"store.idle_10000_mb": (after - before) * 1024 / 1e6}


def start_servers(stack, lines):
    """{role: Server, or the reason that there is none}."""
    servers = {}
    for role, words in lines.items():
        if isinstance(words, str):
            servers[role] = words
            continue
        try:
            servers[role] = stack.enter_context(Server(words))
        except MeasureError as error:
            servers[role] = f"failed: {error}"
    return servers


def contenders(bench, found, sample_one, fast=1):
    return [
        Contender(role, None, why_not=one) if isinstance(one, str) else
        Contender(role, lambda one=one: sample_one(one),
                  per_round=1 if role == PEER else bench.per_round(fast))
        for role, one in found.items()
    ]


def lookup_note():
    """What the peer's server does for each connection, timed here and now."""
    took_ms = []
    for _ in range(LOOKUPS):
        start_s = time.monotonic()
        socket.getnameinfo(("::ffff:127.0.0.1", 1, 0, 0), socket.NI_NUMERICSERV)
        took_ms.append((time.monotonic() - start_s) * 1e3)
    return (f"peer: torch's server looks up the name of each client before it serves the next. Of "
            f"{LOOKUPS} look-ups here half took less than {statistics.median(took_ms):.1f} ms, "
            f"the slowest {max(took_ms):,.0f} ms")


def measure(bench):
    load = bench.programs.native("store_load")
    lines = lines_of(bench)
    if not load:
        lines = {role: load.why_not for role in lines}
    rows = []
    with contextlib.ExitStack() as stack:
        servers = start_servers(stack, lines)
        for workload in WORKLOADS:
            quantities = [*workload.fields, *([workload.cpu] if workload.cpu else [])]
            rows += interleave(
                quantities,
                contenders(bench, servers,
                           lambda server, workload=workload: sample(load.path, workload, server),
                           workload.fast),
                bench.rounds(workload.rounds), bench.say)
            if "connect" in workload.words and rows[-1].samples[PEER]:
                rows[-1].notes.append(lookup_note())
    idle = Quantity("store.idle_10000_mb", "MB",
                    "10,000 idle connections: what the server's memory grew by", target=Target(100))
    rows += interleave([idle], contenders(bench, lines, lambda argv: idle_sample(bench, argv)),
                       bench.rounds(2), bench.say)
    return rows
