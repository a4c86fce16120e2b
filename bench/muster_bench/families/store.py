"""The store under load: musterd, PyTorch's own server and a bare epoll server.

All three servers run for the whole family and get the same load in turn. The native program
store_load makes the load and prints one JSON object.
"""
import contextlib
import dataclasses
import json
import socket
import statistics
import subprocess
import time

from ..interleave import Contender, interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target, TooSlow
from ..programs import ROOT
from ..server import Server

NAME = "store"
ABOUT = "the store: rate, p99 and CPU at 1, 64, 1,000 connections; connect, wake, barrier, idle"
ORDER = 60

LOAD_LIMIT_S = 400.0
QUICK_LIMIT_S = 30.0
IDLE_LIMIT_S = 60.0
LOOKUPS = 100
LARGE_BYTES = 64_000_000
# torch's server looks up the name of each client that connects. If the resolver loses one look-up
# in fifty, each loss stops the server for 5 s. The time to connect 1,000 clients includes this, as
# it should. For all other measurements, the server gets a resolver that gives up sooner, because
# the bench would otherwise take hours.
IMPATIENT_RESOLVER = {"RES_OPTIONS": "timeout:1 attempts:1"}
ALL = (MUSTER, PEER, LIMIT)
BARE_CANNOT = "the bare server knows no such request"


@dataclasses.dataclass(frozen=True)
class Workload:
    """One run of store_load. `fields`: quantity -> its field in the JSON of store_load."""
    words: tuple[str, ...]
    fields: dict[Quantity, str]
    rounds: int = 5
    fast: int = 1
    who: tuple[str, ...] = ALL  # The roles. The bare server knows only the requests of RATES.


def getset(connections, seconds, **more):
    name = f"store.{connections}"
    near_limit = Target(0.95, of=LIMIT, or_equal=True) if connections == 64 else None
    who = f"{connections:,} connection{'s' if connections > 1 else ''}"
    return Workload(
        ("--mode", "getset", "--connections", str(connections), "--seconds", str(seconds)), {
            Quantity(f"{name}.getset_ops_s", "op/s",
                     f"{who}: SET and GET in turn as torch's client does them, each is one op",
                     better="higher", target=near_limit): "ops_s",
            Quantity(f"{name}.p99_us", "µs", f"{who}: 99 of 100 answers came within"): "p99_us",
            Quantity(f"{name}.server_cpu_us", "µs", f"{who}: the server's CPU time for a request "
                     "(SET, WAIT or GET)"): "server_cpu_us_per_request",
        }, **more)


def moment(scenario, name, unit, what, *, field, target=None, **more):
    return Workload(("--scenario", scenario, "--connections", "1000"),
                    {Quantity(name, unit, what, target=target): field}, **more)


# With 1,000 clients, torch's server gets one sample, and the others get three: it needs a minute.
THOUSAND = {"rounds": 1, "fast": 3}
CONNECT = moment("connect", "store.connect_1000_s", "s",
                 "1,000 clients connect at once, until the last has its first answer",
                 field="connect_s", target=Target(0.2), **THOUSAND)
LARGE = Workload(("--scenario", "large", "--value-bytes", str(LARGE_BYTES)), {
    Quantity(f"store.value_64mb.{query}_mb_s", "MB/s",
             f"{query.upper()} of a 64 MB value. torch: its older server, the newer refuses more "
             "than 8 MiB. The limit: into memory that was used before, and from there",
             better="higher"):
    f"{query}_mb_s" for query in ("set", "get")}, rounds=5)
RATES = (getset(1, 1), getset(64, 2), getset(1000, 2, **THOUSAND))
TOGETHER = (
    moment("wake", "store.wake_1000_ms", "ms",
           "a SET that 1,000 clients wait for, until the last knows",
           field="wake_ms", who=(MUSTER, PEER), **THOUSAND),
    moment("barrier", "store.barrier_1000_ms", "ms",
           "1,000 clients arrive at a barrier, until the last may go",
           field="barrier_ms", who=(MUSTER, PEER), **THOUSAND),
)
IDLE = ("--scenario", "idle", "--connections", "10000")


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


def large_lines_of(lines):
    """Returns the command lines for large values.

    torch's libuv server refuses values of more than 8 MiB. torch's older server does not.
    """
    more = {MUSTER: ["--max-value-bytes", LARGE_BYTES], PEER: ["--legacy"], LIMIT: []}
    return {role: words if isinstance(words, str) else words + more[role]
            for role, words in lines.items()}


def run_load(load, server, words, limit_s):
    argv = [load, "--port", str(server.port), "--pid", str(server.pid), *words]
    what = " ".join(words)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise TooSlow(f"{what}: not done within {limit_s:g} s") from None
    server.require_alive()
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise MeasureError(f"{what}: store_load ended with {done.returncode}: {last}")
    return json.loads(done.stdout)


def load_limit_s(bench):
    return QUICK_LIMIT_S if bench.quick else LOAD_LIMIT_S


def sample(bench, load, workload, server):
    result = run_load(load, server, workload.words, load_limit_s(bench))
    return {quantity.name: result[field] for quantity, field in workload.fields.items()}


def large_sample(bench, load, copies, server):
    """Takes a sample, and appends the speed of memcpy at that moment to `copies`."""
    result = run_load(load, server, LARGE.words, load_limit_s(bench))
    copies.append(result["memcpy_mb_s"])
    return {quantity.name: result[field] for quantity, field in LARGE.fields.items()}


def idle_sample(bench, load, argv):
    """Takes a sample at a new server: a server that was busy has free memory already."""
    with Server(argv, **IMPATIENT_RESOLVER) as server:
        result = run_load(load, server, IDLE, IDLE_LIMIT_S / (6 if bench.quick else 1))
        return {"store.idle_10000_mb": result["rss_mb"] - result["rss_before_mb"]}


def start_servers(stack, lines, **environment):
    """Returns {role: Server, or the reason why there is none}."""
    servers = {}
    for role, words in lines.items():
        if isinstance(words, str):
            servers[role] = words
            continue
        try:
            servers[role] = stack.enter_context(Server(words, **environment))
        except MeasureError as error:
            servers[role] = f"failed: {error}"
    return servers


def contenders(bench, found, sample_one, workload):
    return [
        Contender(role, None, why_not=one) if isinstance(one, str) else
        Contender(role, lambda one=one: sample_one(one),
                  per_round=1 if role == PEER else bench.per_round(workload.fast))
        for role, one in found.items() if role in workload.who
    ]


def lookup_note():
    """Times the name look-up that the peer's server does for each connection."""
    took_ms = []
    for _ in range(LOOKUPS):
        start_s = time.monotonic()
        socket.getnameinfo(("::ffff:127.0.0.1", 1, 0, 0), socket.NI_NUMERICSERV)
        took_ms.append((time.monotonic() - start_s) * 1e3)
    return (f"peer: torch's server looks up the name of each client before it serves the next. Of "
            f"{LOOKUPS} look-ups here half took less than {statistics.median(took_ms):.1f} ms, "
            f"the slowest {max(took_ms):,.0f} ms")


def measure_workload(bench, load, servers, workload):
    rows = interleave(
        list(workload.fields),
        contenders(bench, servers, lambda server: sample(bench, load, workload, server), workload),
        bench.rounds(workload.rounds), bench.say)
    for row in rows:
        if LIMIT not in workload.who:
            row.why[LIMIT] = BARE_CANNOT
    return rows


def measure_connect(bench, load, lines):
    with contextlib.ExitStack() as stack:
        rows = measure_workload(bench, load, start_servers(stack, lines), CONNECT)
    if rows[0].samples[PEER]:
        rows[0].notes.append(lookup_note())
    return rows


def measure_large(bench, load, lines):
    copies = []
    with contextlib.ExitStack() as stack:
        servers = start_servers(stack, large_lines_of(lines), **IMPATIENT_RESOLVER)
        rows = interleave(
            list(LARGE.fields),
            contenders(bench, servers,
                       lambda server: large_sample(bench, load, copies, server), LARGE),
            bench.rounds(LARGE.rounds), bench.say)
    if copies:
        rows[0].notes.append(f"memcpy of as much, in the load program between the others: "
                             f"{statistics.median(copies):,.0f} MB/s")
    return rows


def measure_idle(bench, load, lines):
    workload = Workload(IDLE, {
        Quantity("store.idle_10000_mb", "MB",
                 "10,000 idle connections: what the server's resident set grew by",
                 target=Target(100)): "rss_mb"}, rounds=2)
    return interleave(
        list(workload.fields),
        contenders(bench, lines, lambda argv: idle_sample(bench, load, argv), workload),
        bench.rounds(workload.rounds), bench.say)


def measure(bench):
    load = bench.programs.native("store_load")
    lines = lines_of(bench)
    if not load:
        lines = {role: load.why_not for role in lines}
    rows = []
    with contextlib.ExitStack() as stack:
        servers = start_servers(stack, lines, **IMPATIENT_RESOLVER)
        for workload in RATES + TOGETHER:
            rows += measure_workload(bench, load.path, servers, workload)
    return [*rows, *measure_connect(bench, load.path, lines),
            *measure_large(bench, load.path, lines), *measure_idle(bench, load.path, lines)]
