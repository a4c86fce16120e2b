"""Measures the time from a worker's failure to the main of the restarted workers."""
import time

from ..command import Command
from ..interleave import interleave
from ..model import MeasureError, Quantity, Target

NAME = "restart"
ABOUT = "a worker's failure to the main of the last restarted worker"
ORDER = 30

COUNT = 2


def sample(bench, argv):
    with Command(argv) as command:
        command.wait_for_mains(COUNT)
        time.sleep(bench.settle_s())
        command.open_gate()  # Local rank 0 fails. The other worker stays until it is stopped.
        mains = command.wait_for_mains(COUNT, restart_count=1)
        command.wait_for_end()
        failures = [note.at_ns for note in command.notes
                    if note.what == "end" and note.restart_count == 0]
        if len(failures) != 1:
            raise MeasureError(f"{len(failures)} workers ended in the first attempt, not one")
        return {f"restart.{COUNT}_ms": (mains[-1].at_ns - failures[0]) / 1e6}


def measure(bench):
    quantity = Quantity(f"restart.{COUNT}_ms", "ms",
                        f"one of {COUNT} workers' failure to the last restarted worker's main",
                        target=Target(15))
    worker = [bench.programs.native("note_time"), "fail-once"]
    contenders = bench.contenders(bench.launchers(COUNT, worker, restarts=1),
                                  lambda argv: sample(bench, argv), fast=3)
    return interleave([quantity], contenders, bench.rounds(5), bench.say)
