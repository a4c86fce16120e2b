"""Many nodes at one rendezvous: all join, one fails, all join again.

The native program rendezvous_load simulates muster's nodes, through the native door of a musterd.
torchrun's nodes are torch's own handlers (torch_nodes.py), each in a process, at torch's own store
server. The same handlers at a musterd show the effect of musterd's fair compare-and-set. The limit
is rendezvous_load with one message each way, at a server that does nothing.

Every sample has a new server, so its memory and its run are new.
"""
import dataclasses
import functools
import json
import subprocess

from ..interleave import Contender, interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Row, Target, TooSlow
from ..programs import ROOT
from ..server import Server

NAME = "rendezvous"
ABOUT = "8 to 4,096 nodes join, and join again after a failure; torch's handlers at both servers"
ORDER = 70

NODES = (8, 64, 128, 512, 4096)
TORCH_NODES = (8, 64, 128)
QUICK_NODES = (8, 32, 4096)
QUICK_TORCH_NODES = (8, 32)
LARGEST = 4096
COSTS_OF = (64, LARGEST)
# In the first restart, torch's handlers are spread over up to 0.3 s, as at the start of a job. In
# the second restart, and in all later ones, they are not.
RESTARTS = 2
LIMIT_S = 240.0
QUICK_LIMIT_S = 60.0
PATIENCE_S = 60.0  # Added to the limit, for a program that does not keep the limit itself.
TOO_SLOW = 3  # The exit status of torch_nodes.py after its limit.
TORCH_AT_MUSTERD = "torch at musterd"  # A fourth contender, without a column of its own.
NOT_TRIED = f"not tried: a process for each node, more than {TORCH_NODES[-1]} are too many here"
# torch's server looks up the name of each client. A resolver that loses queries would only delay
# the bench, because the measured time begins when all clients are connected.
IMPATIENT_RESOLVER = {"RES_OPTIONS": "timeout:1 attempts:1"}


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A server, and the program whose nodes connect to it."""
    role: str
    server: list
    nodes: list
    why_not: str = ""  # The reason if a program is missing.


def contestants(programs):
    bare = programs.native("bare_epoll_server")
    load = programs.native("rendezvous_load")
    native = ROOT / "bench" / "native"
    musterd = [programs.musterd.path, "--bind", "127.0.0.1", "--port", "0"]
    torch_nodes = [programs.python.path, native / "torch_nodes.py"]
    torch_server = [programs.python.path, native / "torch_store_server.py"]

    def why_not(*needed):
        return next((program.why_not for program in needed if not program), "")
    return (
        Contestant(MUSTER, musterd, [load.path], why_not(programs.musterd, load)),
        Contestant(PEER, torch_server, torch_nodes, why_not(programs.python)),
        Contestant(TORCH_AT_MUSTERD, musterd, torch_nodes,
                   why_not(programs.musterd, programs.python)),
        Contestant(LIMIT, [bare.path], [load.path, "--bare"], why_not(bare, load)),
    )


def run_nodes(argv, limit_s):
    what = f"{argv[-1]} nodes"
    try:
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True,
                              timeout=limit_s + PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise TooSlow(f"{what}: not done within {limit_s + PATIENCE_S:g} s") from None
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == TOO_SLOW:
        raise TooSlow(f"{what}: {last}")
    if done.returncode != 0:
        raise MeasureError(f"{what}: ended with {done.returncode}: {last}")
    return json.loads(done.stdout)


def messages(phase):
    """Returns the messages of a phase, without keep-alives and reports of missing nodes.

    The number of these two kinds depends on the time that the phase took.
    """
    return (phase["messages_to"] + phase["messages_from"] - phase["keep_alives"]
            - phase["waitings"])


def kilobytes(phase):
    return (phase["bytes_to"] + phase["bytes_from"] - phase["keep_alive_bytes"]
            - phase["waiting_bytes"]) / 1e3


def values_of(count, result):
    """Returns one sample: all values that this contestant has. A Line assigns a value to a row."""
    join, restart = result["join"], result["restarts"][-1]
    found = {"join_s": join["seconds"], "restart_s": restart["seconds"]}
    if "tries" in restart:
        return found | {"tries": restart["tries"] / count}
    return found | {
        "messages": (messages(join) + messages(restart)) / count,
        "kb": (kilobytes(join) + kilobytes(restart)) / count,
        "cpu_us": (join["server_cpu_s"] + restart["server_cpu_s"]) * 1e6 / count,
        "host_mb": result["peak_rss_mb"],
    }


KEYS = ("join_s", "restart_s", "tries", "messages", "kb", "cpu_us", "host_mb")


def sample(contestant, count, limit_s):
    with Server(contestant.server, **IMPATIENT_RESOLVER) as server:
        result = run_nodes(
            [*contestant.nodes, "--port", server.port, "--pid", server.pid, "--restarts", RESTARTS,
             "--limit-seconds", limit_s, "--nodes", count], limit_s)
        server.require_alive()
    return values_of(count, result)


# --- the table's lines --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Line:
    quantity: Quantity
    key: str  # A key of values_of().
    columns: dict[str, str]  # Column -> the contestant whose samples are in it.


def native_lines(count):
    everybody = {MUSTER: MUSTER, PEER: PEER, LIMIT: LIMIT}
    who, largest = f"{count:,} nodes", count == LARGEST
    return [
        Line(Quantity(f"rendezvous.{count}.join_s", "s",
                      f"{who} come at once, until the last knows its rank",
                      target=Target(2) if largest else None), "join_s", everybody),
        Line(Quantity(f"rendezvous.{count}.restart_s", "s",
                      f"one of {who} fails and all join again, until the last knows its rank",
                      target=Target(1) if largest else None), "restart_s", everybody),
    ]


def cost_lines(count):
    """Returns the lines of the costs of a join and one restart together."""
    who, largest = f"{count:,} nodes", count == LARGEST
    muster = {MUSTER: MUSTER}
    return [
        Line(Quantity(f"rendezvous.{count}.messages_per_node", "",
                      f"{who}: messages for each, both ways, to join and for one restart"),
             "messages", muster),
        Line(Quantity(f"rendezvous.{count}.kb_per_node", "kB",
                      f"{who}: the bytes of all its messages"), "kb", muster),
        Line(Quantity(f"rendezvous.{count}.cpu_us_per_node", "µs",
                      f"{who}: the server's CPU time for each, to join and for one restart"),
             "cpu_us", muster),
        Line(Quantity(f"rendezvous.{count}.host_mb", "MB",
                      f"{who}: the server's resident set at its largest",
                      target=Target(100) if largest else None), "host_mb", muster),
    ]


def torch_lines(count):
    """Returns the lines of torch's own handlers.

    The column muster has the handlers at musterd, the column peer those at torch's store.
    """
    both = {MUSTER: TORCH_AT_MUSTERD, PEER: PEER}
    who = f"{count:,} torch handlers, at musterd and at torch's store"
    return [
        Line(Quantity(f"rendezvous.{count}.torch_join_s", "s", f"{who}: as join_s"), "join_s",
             both),
        Line(Quantity(f"rendezvous.{count}.torch_restart_s", "s", f"{who}: as restart_s"),
             "restart_s", both),
        Line(Quantity(f"rendezvous.{count}.torch_tries_per_node", "",
                      f"{who}: compare-and-sets of each in a restart"), "tries", both),
    ]


def row_of(line, raw):
    source = raw[line.key]
    return Row(line.quantity,
               {column: list(source.samples.get(role, []))
                for column, role in line.columns.items()},
               {column: source.why[role]
                for column, role in line.columns.items() if role in source.why})


# --- the measurement ----------------------------------------------------------------------------


def contenders(bench, count, with_torch):
    limit_s = QUICK_LIMIT_S if bench.quick else LIMIT_S
    found = []
    for one in contestants(bench.programs):
        is_torch = one.role in (PEER, TORCH_AT_MUSTERD)
        why_not = one.why_not or (NOT_TRIED if is_torch and not with_torch else "")
        found.append(Contender(
            one.role, None if why_not else functools.partial(sample, one, count, limit_s),
            why_not=why_not, per_round=1 if is_torch else bench.per_round(3)))
    return found


def measure_count(bench, count, with_torch):
    # For 128 nodes, torch's handlers need a minute and more, and do not finish in one of two runs.
    rounds = bench.rounds({128: 1, LARGEST: 5}.get(count, 3))
    rows = interleave([Quantity(key, "", key) for key in KEYS],
                      contenders(bench, count, with_torch), rounds, bench.say)
    raw = {row.quantity.name: row for row in rows}
    lines = native_lines(count)
    lines += cost_lines(count) if count in COSTS_OF else []
    lines += torch_lines(count) if with_torch else []
    return [row_of(line, raw) for line in lines]


def measure(bench):
    with_torch = QUICK_TORCH_NODES if bench.quick else TORCH_NODES
    rows = []
    for count in QUICK_NODES if bench.quick else NODES:
        bench.say(f"  {count} nodes")
        rows += measure_count(bench, count, count in with_torch)
    return rows
