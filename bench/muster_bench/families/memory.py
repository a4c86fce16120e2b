"""Measures the memory of the launcher's own processes while the workers run."""
import time

from ..command import Command, descendants
from ..interleave import interleave
from ..model import MeasureError, Quantity, Target

NAME = "memory"
ABOUT = "memory of the launcher's own processes (without workers) while the job runs"
ORDER = 40

COUNT = 2
SETTLE_LIMIT_S = 5.0


def kib(pid, file, field):
    """Returns a field of /proc/PID/FILE in KiB, or 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/{file}") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return 0


def own_processes(command):
    workers = {note.pid for note in command.mains()}
    return [command.pid, *descendants(command.pid, without=workers)]


def pss_kib(command):
    """Returns the sum of the proportional set sizes.

    A page that k processes share counts 1/k for each of them.
    """
    return sum(kib(pid, "smaps_rollup", "Pss") for pid in own_processes(command))


def settled_pss_kib(command):
    """Returns the first PSS that differs by at most 1 % from the PSS before it.

    The launcher has then finished its start.
    """
    deadline_s = time.monotonic() + SETTLE_LIMIT_S
    last = pss_kib(command)
    while time.monotonic() < deadline_s:
        time.sleep(0.2)
        now = pss_kib(command)
        if now and abs(now - last) <= now * 0.01:
            return now
        last = now
    raise MeasureError(f"its memory does not settle: {last} KiB after {SETTLE_LIMIT_S} s")


def sample(argv):
    with Command(argv) as command:
        command.wait_for_mains(COUNT)
        pss = settled_pss_kib(command)
        largest = max(kib(pid, "status", "VmRSS") for pid in own_processes(command))
        command.open_gate()
        command.wait_for_end()
        # 1 MB is 10^6 bytes, as in all measurements.
        return {"agent.memory_mb": pss * 1024 / 1e6, "agent.largest_rss_mb": largest * 1024 / 1e6}


def measure(bench):
    quantities = [
        Quantity("agent.memory_mb", "MB",
                 f"the launcher's processes, {COUNT} workers running: sum of PSS",
                 target=Target(10)),
        Quantity("agent.largest_rss_mb", "MB", "the largest of them: RSS"),
    ]
    worker = [bench.programs.native("note_time"), "hold"]
    contenders = bench.contenders(bench.launchers(COUNT, worker), sample)
    return interleave(quantities, contenders, bench.rounds(3), bench.say)
