"""Measures the time from the command to its workers' main, and the time of --help."""
from ..command import Command
from ..context import line
from ..interleave import interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target

NAME = "start"
ABOUT = "command to the first and the last worker's main; 1, 2, 8 and 64 workers; --help"
ORDER = 10

COUNTS = (1, 2, 8, 64)
TARGETS = {"start.2.first_ms": Target(10), "start.64.last_ms": Target(60)}
HELP = Quantity("start.help_ms", "ms", "--help: the command to its exit, all of the text printed",
                target=Target(10))


def sample(count, argv):
    with Command(argv) as command:
        mains = command.wait_for_mains(count)
        command.open_gate()
        command.wait_for_end()
        first, last = mains[0].at_ns, mains[-1].at_ns
        return {f"start.{count}.first_ms": (first - command.start_ns) / 1e6,
                f"start.{count}.last_ms": (last - command.start_ns) / 1e6}


def help_sample(argv):
    with Command(argv) as command:
        command.wait_for_end()
        if "--help" in argv and "--nproc-per-node" not in command.printed():
            raise MeasureError(f"--help does not name --nproc-per-node{command.tail()}")
        return {HELP.name: (command.end_ns - command.start_ns) / 1e6}


def help_lines(programs):
    """Returns the command lines of --help. The limit is a program that ends at once."""
    return {MUSTER: line(programs.muster, ["--help"]), PEER: line(programs.torchrun, ["--help"]),
            LIMIT: line(programs.native("note_time"), ["exit"])}


def measure(bench):
    rows = []
    worker = [bench.programs.native("note_time"), "hold"]
    for count in COUNTS:
        quantities = [
            Quantity(name, "ms", f"command to {which} worker's main, {count} in all",
                     target=TARGETS.get(name))
            for which in ("first", "last")
            for name in [f"start.{count}.{which}_ms"]
        ]
        contenders = bench.contenders(
            bench.launchers(count, worker),
            lambda argv, count=count: sample(count, argv), fast=5)
        rows += interleave(quantities, contenders, bench.rounds(5 if count < 64 else 3), bench.say)
    return rows + interleave(
        [HELP], bench.contenders(help_lines(bench.programs), help_sample, fast=5),
        bench.rounds(5), bench.say)
