#!/usr/bin/env python3
"""One rank finds bad data and raises. @record brings the traceback to the launcher's summary.

    muster --standalone --nproc-per-node=2 examples/record_errors/count.py --bad-line 5

It needs torch only for the decorator.
"""

import argparse
import os

from torch.distributed.elastic.multiprocessing.errors import record

LINES = 8


class BadLine(ValueError):
    """A line is not a number. The text has the line's number and content."""


def lines_of(bad_line: int | None) -> list[str]:
    """Returns the lines of a file: numbers, and one line that is not a number if asked for."""
    return ["x7" if line == bad_line else str(line * line) for line in range(LINES)]


def parse(number: int, text: str) -> int:
    if not text.isdecimal():
        raise BadLine(f"line {number}: {text!r} is not a number")
    return int(text)


def add_up(lines: list[str], rank: int, world_size: int) -> int:
    """Returns the sum of this rank's lines: every world_size-th line, starting at line `rank`."""
    return sum(parse(number, lines[number]) for number in range(rank, len(lines), world_size))


@record  # Writes an exception that leaves main() into the error file.
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bad-line", type=int, metavar="N", help=f"one of 0 to {LINES - 1}")
    arguments = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    total = add_up(lines_of(arguments.bad_line), rank, world_size)
    print(f"rank {rank}: sum {total}\n", end="", flush=True)  # One write: lines do not mix.


if __name__ == "__main__":
    main()
