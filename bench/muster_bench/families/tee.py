"""Two workers print 31 MB each in short lines, to files and, with prefixes, to the console."""
import pathlib
import shutil
import tempfile

from ..command import Command
from ..interleave import interleave
from ..lines import Numbers, check_plain, check_prefixed
from ..model import LIMIT, MUSTER, PEER, MeasureError, Quantity, Target

NAME = "tee"
ABOUT = "-t 3 with 2 × 31 MB in short lines: until every byte is in its file and on the console"
ORDER = 50

WORKERS = 2
COUNT = 4_000_000  # Lines of each worker: 30.9 MB.


def lines_of(bench, logs):
    """Returns the command lines. The limit is a pipe and the system's tee for each worker, without
    prefixes."""
    program = bench.programs.native("print_lines")
    worker = [program, COUNT]
    lines = bench.launchers(WORKERS, worker, options=["--log-dir", logs, "--tee", "3"])
    if isinstance(lines[LIMIT], list) and (tee := shutil.which("tee")):
        script = f'"$0" "$1" | "{tee}" "$2/$LOCAL_RANK.log"'
        lines[LIMIT] = [bench.programs.native("bare_launcher").path, str(WORKERS), "/bin/sh", "-c",
                        script, program.path, str(COUNT), str(logs)]
    elif isinstance(lines[LIMIT], list):
        lines[LIMIT] = "no tee in PATH"
    return lines


def sample(folder, argv, check):
    """Measures from the first worker's main to the command's end, without the launcher's start."""
    console, logs = folder / "console", folder / "logs"
    logs.mkdir()
    try:
        with Command(argv, stdout=console) as command:
            mains = command.wait_for_mains(WORKERS)
            command.wait_for_end()
        check(console, logs)
        return {"tee.62mb_s": (command.end_ns - mains[0].at_ns) / 1e9}
    finally:
        shutil.rmtree(logs)
        console.unlink(missing_ok=True)


def worker_logs(logs):
    """Finds the workers' log files in torchrun's layout: RUN/attempt_0/LOCAL_RANK/stdout.log."""
    found = sorted(logs.glob("*/attempt_0/*/stdout.log"))
    if len(found) != WORKERS:
        raise MeasureError(f"{len(found)} files stdout.log in the log directory, not {WORKERS}")
    return found


def check_launcher(torn_lines, console, logs):
    for path in worker_logs(logs):
        with open(path, "rb") as file:
            check_plain(file, COUNT)
    with open(console, "rb") as file:
        torn_lines.append(check_prefixed(file, WORKERS, COUNT))


def check_bare(console, logs):
    for path in sorted(logs.glob("*.log")):
        with open(path, "rb") as file:
            check_plain(file, COUNT)
    if console.stat().st_size != WORKERS * Numbers.size(COUNT):
        raise MeasureError(f"{console.stat().st_size} bytes arrived on the console")


def measure(bench):
    quantity = Quantity("tee.62mb_s", "s", "2 × 31 MB in 8 million lines, to files and prefixed to "
                        "the console: first worker's main to the command's end; the limit is "
                        "tee(1), without prefixes", target=Target(0.5))
    torn = {MUSTER: [], PEER: []}
    with tempfile.TemporaryDirectory(prefix="muster-bench-tee-") as name:
        folder = pathlib.Path(name)
        lines = lines_of(bench, folder / "logs")
        contenders = []
        for role, words in lines.items():
            def check(console, logs, role=role):
                if role == LIMIT:
                    return check_bare(console, logs)
                return check_launcher(torn[role], console, logs)
            contenders += bench.contenders(
                {role: words}, lambda argv, check=check: sample(folder, argv, check))
        rows = interleave([quantity], contenders, bench.rounds(3), bench.say)
    for role, counts in torn.items():
        if counts:
            rows[0].notes.append(f"{role}: every byte arrived; of 8,000,000 lines "
                                 f"{max(counts)} were torn at most")
    return rows
