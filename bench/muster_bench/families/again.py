"""Measures the time to the first optimizer step of all ranks, after the command and after a failure."""
import functools
import pathlib
import time

from ..command import Command
from ..context import line
from ..interleave import interleave
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target

NAME = "again"
ABOUT = "a failure, or the command, to the first optimizer step of all ranks, cold and with --warm"
ORDER = 31

FAILING = (2, 4)  # Ranks of the jobs in which one fails.
STARTING = (1, 2, 4, 8)
FASTER = 4  # The target of a start of the most ranks, against a cold one.
# Two imports of torch by each rank, and by torchrun itself, on a machine that does something else.
LIMIT_S = 300.0
NATIVE = pathlib.Path(__file__).resolve().parents[2] / "native"
WORKER = NATIVE / "again_steps.py"
IN_PROCESS_WORKER = NATIVE / "in_process_steps.py"


def wait_for_steps(command, attempt, count):
    def steps():
        return [note for note in command.notes
                if note.what == "stepped" and note.restart_count == attempt]
    command.wait_for(f"{count} workers had done a step (attempt {attempt})",
                     lambda _: len(steps()) >= count)
    return max(note.at_ns for note in steps())


def environment(programs, argv):
    """torchrun's workers get a store of their own: a second attempt on torchrun's store meets addresses of the first one,
    and may fail or stand still."""
    is_peer = argv[0] == programs.torchrun.path
    return {"PYTHON_EXEC": str(programs.python.path), **({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if is_peer else {})}


def sample(bench, count, argv):
    with Command(argv, limit_s=LIMIT_S, environment=environment(bench.programs, argv)) as command:
        first_ns = wait_for_steps(command, 0, count)
        found = {f"again.start_{count}_s": (first_ns - command.start_ns) / 1e9}
        if count not in FAILING:
            return found  # The end of the context kills the job.
        return {**found, f"again.failure_{count}_s": fail(bench, command, count)}


def fail(bench, command, count):
    """Lets one worker fail. Returns the seconds until all have done a step again."""
    time.sleep(bench.settle_s())
    command.open_gate()
    again_ns = wait_for_steps(command, 1, count)
    command.wait_for_end()
    failures = [note.at_ns for note in command.notes if note.what == "fails"]
    if len(failures) != 1:
        raise MeasureError(f"{len(failures)} workers failed, not one")
    return (again_ns - failures[0]) / 1e9


def sample_exception(bench, count, argv):
    python = bench.programs.nvrx if argv[0] == bench.programs.nvrx.path else bench.programs.python
    environment = {"PYTHON_EXEC": python.path, "MUSTER_BENCH_RAISES": "1"}
    with Command(argv, limit_s=LIMIT_S, environment=environment) as command:
        wait_for_steps(command, 0, count)
        return {f"again.exception_{count}_s": fail(bench, command, count)}


def lines(programs, count):
    if not programs.python:
        return {role: programs.python.why_not for role in (MUSTER, PEER, LIMIT)}
    words = ["--standalone", f"--nproc-per-node={count}", "--max-restarts=1", WORKER]
    return {MUSTER: line(programs.muster, ["--warm", *words]), PEER: line(programs.torchrun, words),
            LIMIT: line(programs.muster, words)}


def exception_lines(programs, count):
    """NVRx's wrapper, whose attempts are calls in one process, in place of torchrun's restart."""
    words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", IN_PROCESS_WORKER]
    return {**lines(programs, count), PEER: line(programs.nvrx, words)}


def ranks(count):
    return f"{count} rank{'s' if count > 1 else ''}, DDP over Gloo; muster with --warm, limit: muster without it"


def quantities(count):
    start = Quantity(f"again.start_{count}_s", "s", f"command to the first step of all ranks; {ranks(count)}",
                     target=Target(1 / FASTER, LIMIT, or_equal=True) if count == max(STARTING) else Target(1, PEER))
    if count not in FAILING:
        return [start]
    return [Quantity(f"again.failure_{count}_s", "s",
                     f"a rank's failure to the first step of all ranks; {ranks(count)}",
                     target=Target(0.15, or_equal=True) if count == 2 else Target(1, PEER)), start]


def exception_quantity(count):
    return Quantity(f"again.exception_{count}_s", "s",
                    f"an exception of a rank to the first step of all ranks; {ranks(count)}; peer: NVRx's "
                    "in-process wrapper under torchrun")


def measure(bench):
    rows = []
    for count in STARTING:
        contenders = bench.contenders(lines(bench.programs, count), functools.partial(sample, bench, count))
        rows += interleave(quantities(count), contenders, bench.rounds(5), bench.say)
    for count in FAILING:
        contenders = bench.contenders(exception_lines(bench.programs, count),
                                      functools.partial(sample_exception, bench, count))
        rows += interleave([exception_quantity(count)], contenders, bench.rounds(5), bench.say)
    return rows
