#!/usr/bin/env python3
"""One rank meets bad data and raises; @record carries its traceback to the launcher's summary.

    muster --standalone --nproc-per-node=2 examples/record_errors/count.py --bad-line 5

It needs torch for the decorator alone.
"""

import argparse
import os

from torch.distributed.elastic.multiprocessing.errors import record

LINES = 8


class BadLine(ValueError):
    """A line that is no number. The text says which, and what it holds."""


def lines_of(bad_line: int | None) -> list[str]:
    """What a file would hold: numbers, and perhaps one line that is none."""
    return ["x7" if line == bad_line else str(line * line) for line in range(LINES)]


def parse(number: int, text: str) -> int:
    if not text.isdecimal():
        raise BadLine(f"line {number}: {text!r} is not a number")
    return int(text)


def add_up(lines: list[str], rank: int, world_size: int) -> int:
    """The sum of this rank's lines: every world_size-th, from line `rank` on."""
    return sum(parse(number, lines[number]) for number in range(rank, len(lines), world_size))


@record  # On the function that the program consists of: what leaves it is written down.
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bad-line", type=int, metavar="N", help=f"one of 0 to {LINES - 1}")
    arguments = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    total = add_up(lines_of(arguments.bad_line), rank, world_size)
    print(f"rank {rank}: sum {total}\n", end="", flush=True)  # One write: ranks do not mix.


if __name__ == "__main__":
    main()
