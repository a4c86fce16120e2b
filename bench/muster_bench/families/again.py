"""Measures the time to the first optimizer step of all ranks, after the command and after a failure."""
import pathlib
import time

from ..command import Command
from ..context import line
from ..interleave import interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target

NAME = "again"
ABOUT = "a failure, or the command, to the first optimizer step of all ranks, cold and with --warm"
ORDER = 31

COUNT = 2
LIMIT_S = 60.0
WORKER = pathlib.Path(__file__).resolve().parents[2] / "native" / "again_steps.py"


def wait_for_steps(command, attempt):
    def steps():
        return [note for note in command.notes
                if note.what == "stepped" and note.restart_count == attempt]
    command.wait_for(f"{COUNT} workers had done a step (attempt {attempt})",
                     lambda _: len(steps()) >= COUNT)
    return max(note.at_ns for note in steps())


def sample(bench, argv):
    python = bench.programs.python.path
    with Command(argv, limit_s=LIMIT_S, environment={"PYTHON_EXEC": str(python)}) as command:
        first_ns = wait_for_steps(command, 0)
        time.sleep(bench.settle_s())
        command.open_gate()
        again_ns = wait_for_steps(command, 1)
        command.wait_for_end()
        failures = [note.at_ns for note in command.notes if note.what == "fails"]
        if len(failures) != 1:
            raise MeasureError(f"{len(failures)} workers failed, not one")
        return {f"again.start_{COUNT}_s": (first_ns - command.start_ns) / 1e9,
                f"again.failure_{COUNT}_s": (again_ns - failures[0]) / 1e9}


def lines(programs):
    if not programs.python:
        return {role: programs.python.why_not for role in (MUSTER, PEER, LIMIT)}
    words = ["--standalone", f"--nproc-per-node={COUNT}", "--max-restarts=1", WORKER]
    return {MUSTER: line(programs.muster, ["--warm", *words]), PEER: line(programs.torchrun, words),
            LIMIT: line(programs.muster, words)}


def measure(bench):
    ranks = f"{COUNT} ranks, DDP over Gloo; muster with --warm, limit: muster without it"
    quantities = [
        Quantity(f"again.failure_{COUNT}_s", "s",
                 f"a rank's failure to the first step of all ranks; {ranks}",
                 target=Target(0.15, or_equal=True)),
        Quantity(f"again.start_{COUNT}_s", "s", f"command to the first step of all ranks; {ranks}",
                 target=Target(1, PEER)),
    ]
    contenders = bench.contenders(lines(bench.programs), lambda argv: sample(bench, argv))
    return interleave(quantities, contenders, bench.rounds(5), bench.say)
