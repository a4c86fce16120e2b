"""From the command to its workers' main."""
from ..command import Command
from ..interleave import interleave
from ..model import Quantity, Target

NAME = "start"
ABOUT = "command to the first and the last worker's main; 1, 2, 8 and 64 workers"
ORDER = 10

COUNTS = (1, 2, 8, 64)
TARGETS = {"start.2.first_ms": Target(10), "start.64.last_ms": Target(60)}


def sample(count, argv):
    with Command(argv) as command:
        mains = command.wait_for_mains(count)
        command.open_gate()
        command.wait_for_end()
        first, last = mains[0].at_ns, mains[-1].at_ns
        return {f"start.{count}.first_ms": (first - command.start_ns) / 1e6,
                f"start.{count}.last_ms": (last - command.start_ns) / 1e6}


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
    return rows
