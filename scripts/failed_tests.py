#!/usr/bin/env python3
"""The end of what each test printed that failed in ctest's last run, in one place.

    scripts/failed_tests.py build/release

ctest prints it between hundreds of lines about tests that passed.
"""
import pathlib
import re
import sys

LINES_MAX = 60
HEADING = re.compile(r"^\d+/\d+ Testing: (.+)$", re.MULTILINE)


def outputs(log):
    """{test: what it printed}, of ctest's LastTest.log."""
    parts = HEADING.split(log)[1:]
    printed = {}
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        begin = re.search(r"^Output:\n-+\n", part, re.MULTILINE)
        printed[name] = (part[begin.end():] if begin else part).partition("<end of output>")[0]
    return printed


def main(build):
    folder = pathlib.Path(build) / "Testing/Temporary"
    failed = folder / "LastTestsFailed.log"
    if not failed.exists():
        return
    printed = outputs((folder / "LastTest.log").read_text(errors="replace"))
    for line in failed.read_text().splitlines():
        name = line.partition(":")[2]
        if name not in printed:  # Of an earlier run: ctest leaves the list where it runs no test.
            continue
        print(f"---- {build}: {name} failed. The end of what it printed:")
        for text in printed[name].rstrip().splitlines()[-LINES_MAX:]:
            print(f"    | {text}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} BUILD_FOLDER")
    main(sys.argv[1])
