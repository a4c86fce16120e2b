"""Data-parallel training: the C++ SDK and Python, both started by the same launcher."""
import pathlib

from ..command import Command
from ..context import line
from ..interleave import interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target
from .memory import kib

NAME = "ddp"
ABOUT = "the SDK's DistributedDataParallel against Python's: step, first step, memory"
ORDER = 70

COUNT = 2
STEPS, QUICK_STEPS = 300, 50
PYTHON_SIDE = pathlib.Path(__file__).resolve().parents[2] / "native" / "ddp_steps.py"
NETWORK = f"MLP of 670,000 parameters, batch 64, Gloo, {COUNT} processes of one thread"


def times(command, what):
    """Returns {local rank: time of the worker's note `what`, in nanoseconds}."""
    found = {note.local_rank: note.at_ns for note in command.notes if note.what == what}
    if len(found) != COUNT:
        raise MeasureError(f"{len(found)} workers noted '{what}', not {COUNT}{command.tail()}")
    return found


def sample(steps, argv):
    with Command(argv) as command:
        command.wait_for(f"{COUNT} workers had done their steps", lambda notes: COUNT == sum(
            note.what == "done" for note in notes))
        first, begin, done = (times(command, what) for what in ("first_step", "begin", "done"))
        # The workers wait at the gate now. In PSS, a page of a library that several processes map
        # counts in part for each of them.
        memory_kib = [kib(note.pid, "smaps_rollup", "Pss") for note in command.mains()]
        command.open_gate()
        command.wait_for_end()
        slowest_ns = max(done[rank] - begin[rank] for rank in done)
        return {"ddp.step_ms": slowest_ns / steps / 1e6,
                "ddp.first_step_s": (max(first.values()) - command.start_ns) / 1e9,
                "ddp.memory_mb": sum(memory_kib) * 1024 / 1e6 / COUNT}


def lines(programs, steps):
    """Returns the command lines. All use the same launcher, so that only the worker differs."""
    launcher = programs.muster or programs.torchrun
    own, python = programs.native("ddp_steps"), programs.python
    words = ["--standalone", f"--nproc-per-node={COUNT}", "--no-python"]

    def of(program, *arguments):
        return line(launcher, [*words, program.path, *arguments]) if program else program.why_not

    return {MUSTER: of(own, "ddp", steps), PEER: of(python, PYTHON_SIDE, steps),
            LIMIT: of(own, "plain", steps)}


def measure(bench):
    steps = QUICK_STEPS if bench.quick else STEPS
    quantities = [
        Quantity("ddp.step_ms", "ms", f"one step of DDP, C++ against Python (limit: C++ without "
                 f"communication); {NETWORK}", target=Target(1.03, PEER, or_equal=True)),
        Quantity("ddp.first_step_s", "s", "command to the end of the last worker's first step",
                 target=Target(1, PEER)),
        Quantity("ddp.memory_mb", "MB", "each worker's memory after its steps (PSS)",
                 target=Target(1, PEER)),
    ]
    contenders = bench.contenders(lines(bench.programs, steps),
                                  lambda argv: sample(steps, argv))
    return interleave(quantities, contenders, bench.rounds(5), bench.say)
