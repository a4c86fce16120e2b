"""Measures the time from the end of the last worker to the exit of the command."""
import time

from ..command import Command
from ..interleave import interleave
from ..model import Quantity, Target

NAME = "exit"
ABOUT = "last worker's end to the command's exit"
ORDER = 20

COUNTS = (2, 64)
TARGETS = {"exit.2_ms": Target(5)}


def sample(bench, count, argv):
    with Command(argv) as command:
        command.wait_for_mains(count)
        time.sleep(bench.settle_s())
        command.open_gate()
        command.wait_for_end()
        ends = [note.at_ns for note in command.notes if note.what == "end"]
        return {f"exit.{count}_ms": (command.end_ns - max(ends)) / 1e6}


def measure(bench):
    rows = []
    worker = [bench.programs.native("note_time"), "hold"]
    for count in COUNTS:
        name = f"exit.{count}_ms"
        quantity = Quantity(name, "ms", f"last of {count} workers' end to the command's exit",
                            target=TARGETS.get(name))
        contenders = bench.contenders(
            bench.launchers(count, worker),
            lambda argv, count=count: sample(bench, count, argv), fast=3)
        rows += interleave([quantity], contenders, bench.rounds(5 if count < 64 else 3), bench.say)
    return rows
