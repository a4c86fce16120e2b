#!/usr/bin/env python3
"""Runs a build's tests with ctest, and the failed ones once more, each alone.

    scripts/run_tests.py release --parallel 8 --label-regex '^unit$'
    scripts/run_tests.py release --again      # the report of the last run, without a run

The arguments after the preset are ctest's. A test that fails the first time fails the run, even if it
passes alone. The report names each failed test with both results and both ends of its output, then the
slowest tests, then the failed ones in one line each; ctest's summary is the last line.
"""
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_LINES_MAX = 20  # Where many test frameworks name the place.
LAST_LINES_MAX = 40
RERUNS_MAX = 20  # More failures than that have one cause, and a second run costs too much time.
SLOWEST_SHOWN = 10
FIRST_XML = "Testing/first_run.xml"
ALONE_XML = "Testing/alone.xml"
SUMMARY_TEXT = "Testing/summary.txt"
# Where nobody watches, one line for each of hundreds of tests that pass at once would bury the rest.
QUICK_PASS = re.compile(r"^ *Start +\d+: | Passed +0\.\d+ sec$")
SUMMARY = re.compile(r"^\d+% tests passed|^Total Test time|^No tests were found")


class Outcome:
    """One test's result, from the JUnit file that ctest writes."""

    def __init__(self, case):
        self.name = case.get("name")
        self.seconds = float(case.get("time") or 0)
        self.failed = case.get("status") == "fail"
        self.output = case.findtext("system-out") or ""

    def text(self):
        return f"{'FAILED' if self.failed else 'passed'} in {self.seconds:.1f} s"

    def both_ends_of_output(self):
        lines = self.output.strip().splitlines()
        if len(lines) > FIRST_LINES_MAX + LAST_LINES_MAX:
            left_out = f"[{len(lines) - FIRST_LINES_MAX - LAST_LINES_MAX} lines left out]"
            lines = lines[:FIRST_LINES_MAX] + [left_out] + lines[-LAST_LINES_MAX:]
        return [f"    | {line}" for line in lines]


def outcomes(path):
    """{name: Outcome}; empty if there is no file."""
    if not path.exists():
        return {}
    cases = xml.etree.ElementTree.parse(path).iter("testcase")
    return {case.get("name"): Outcome(case) for case in cases}


def run_ctest(preset, junit, *arguments):
    """Shows ctest's output as it comes. Returns the exit code and the lines of the summary."""
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    shows_all = sys.stdout.isatty()
    summary = []
    with subprocess.Popen(["ctest", "--preset", preset, "--output-junit", str(junit), *arguments],
                          cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          errors="replace") as process:
        for line in process.stdout:
            if SUMMARY.search(line):
                summary.append(line.rstrip())
            if shows_all or not QUICK_PASS.search(line):
                print(line, end="", flush=True)
    return process.returncode, summary


def report(preset, build):
    """Prints what failed, with both results, and the slowest tests."""
    first, alone = outcomes(build / FIRST_XML), outcomes(build / ALONE_XML)
    for outcome in first.values():
        if not outcome.failed:
            continue
        again = alone.get(outcome.name)
        print(f"---- {preset}: {outcome.name}: {outcome.text()}; "
              f"alone: {again.text() if again else 'not run'}. Its output:")
        print("\n".join(outcome.both_ends_of_output()))
        if again and again.failed:
            print("  and its output when it ran alone:")
            print("\n".join(again.both_ends_of_output()))
    slowest = sorted(first.values(), key=lambda outcome: -outcome.seconds)[:SLOWEST_SHOWN]
    if slowest and slowest[0].seconds >= 1:
        print(f"the slowest tests of {preset}, in seconds: " +
              ", ".join(f"{outcome.name} {outcome.seconds:.0f}" for outcome in slowest
                        if outcome.seconds >= 1))
    # The names once more: whoever sees only the last lines of a log finds them there.
    for outcome in first.values():
        if outcome.failed:
            print(f"{preset}: FAILED: {outcome.name}")


def main(preset, *arguments):
    build = ROOT / "build" / preset
    if arguments == ("--again",):
        report(preset, build)
        print((build / SUMMARY_TEXT).read_text(), end="")
        return 0
    (build / ALONE_XML).unlink(missing_ok=True)
    code, summary = run_ctest(preset, build / FIRST_XML, "--no-tests=error", *arguments)
    failed = [outcome for outcome in outcomes(build / FIRST_XML).values() if outcome.failed]
    if failed and len(failed) <= RERUNS_MAX:
        print(f"{preset}: the {len(failed)} tests that failed run again, one at a time", flush=True)
        run_ctest(preset, build / ALONE_XML, "--rerun-failed", "--parallel", "1")
    report(preset, build)
    (build / SUMMARY_TEXT).write_text("".join(f"{line}\n" for line in summary))
    print((build / SUMMARY_TEXT).read_text(), end="", flush=True)
    return code


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {sys.argv[0]} PRESET [--again | CTEST-ARGUMENTS...]")
    sys.exit(main(*sys.argv[1:]))
