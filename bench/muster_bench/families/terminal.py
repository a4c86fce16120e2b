"""Two workers print 3 MB each to a terminal: each has a terminal of its own, for the failure summary, or they have the
launcher's itself."""
import os
import subprocess
import sys
import tty

from ..command import Command
from ..interleave import interleave
from ..lines import Numbers
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity

NAME = "terminal"
ABOUT = "2 × 3 MB to a terminal: a terminal for each worker, and the launcher's for all"
ORDER = 52

WORKERS = 2
COUNT = 400_000  # Lines of each worker: 2.7 MB.
# The program at the other side of the terminal: it reads until all programs have closed theirs.
READER = """
import os
count = 0
while True:
    try:
        data = os.read(0, 65536)
    except OSError:
        data = b""
    if not data:
        break
    count += len(data)
print(count)
"""


def sample(argv):
    master, slave = os.openpty()
    tty.setraw(slave)  # The bytes stay as they are.
    name = os.ttyname(slave)
    with subprocess.Popen([sys.executable, "-c", READER], stdin=master, stdout=subprocess.PIPE) as reader:
        os.close(master)
        try:
            with Command(argv, stdout=name, stderr=name) as command:
                mains = command.wait_for_mains(WORKERS)
                command.wait_for_end()
        finally:
            os.close(slave)
        shown = int(reader.stdout.read())
    if shown < WORKERS * Numbers.size(COUNT):
        raise MeasureError(f"{shown} bytes arrived at the terminal")
    return {"terminal.5mb_s": (command.end_ns - mains[0].at_ns) / 1e9}


def measure(bench):
    quantity = Quantity("terminal.5mb_s", "s", "2 × 2.7 MB in 800,000 lines to a terminal that is read at once: first "
                        "worker's main to the command's end; the limit is muster with --capture-stderr=never")
    worker = [bench.programs.native("print_lines"), COUNT]
    lines = bench.launchers(WORKERS, worker)
    without = bench.launchers(WORKERS, worker, options=["--capture-stderr=never"])
    lines = {MUSTER: lines[MUSTER], PEER: lines[PEER], LIMIT: without[MUSTER]}
    return interleave([quantity], bench.contenders(lines, sample), bench.rounds(5), bench.say)
