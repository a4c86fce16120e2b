#!/usr/bin/env python3
"""Runs a build's tests with ctest. Tests that fail run a second time, one at a time.

    scripts/run_tests.py release --parallel 8 --label-regex '^unit$'
    scripts/run_tests.py release --may-not-skip '_fuzz$' --parallel 8
    scripts/run_tests.py release --again      # prints the report of the last run, and runs nothing

The arguments after the preset are ctest's, except --may-not-skip REGEX: a skipped test whose name matches fails the
run. A test that fails the first time fails the run, even if it passes alone. The report shows each failed test with
both results and with the first and last lines of its output. Then it lists the slowest tests, what was skipped and
why, and the names of the failed tests. The last line is ctest's summary.
"""
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_LINES_MAX = 20  # Many test frameworks name the place of a failure here.
LAST_LINES_MAX = 40
RERUNS_MAX = 20  # More failures usually have one cause, and a second run of all of them takes too long.
SLOWEST_SHOWN = 10
PASSED_OUTPUT_BYTES = 100_000  # A passed test's output says which of its parts were skipped. ctest's limit is 1024.
FIRST_XML = "Testing/first_run.xml"
ALONE_XML = "Testing/alone.xml"
SUMMARY_TEXT = "Testing/summary.txt"
# In a log file, the lines of hundreds of tests that pass within a second would hide the others.
QUICK_PASS = re.compile(r"^ *Start +\d+: | Passed +0\.\d+ sec$")
SUMMARY = re.compile(r"^\d+% tests passed|^Total Test time|^No tests were found")
# unittest's line about a skipped part, with verbosity=2. A docstring stands on a line of its own.
SKIPPED_PART = re.compile(r"^(?P<part>\w+) \([\w.]+\)(?:\n.*)? \.\.\. skipped (?P<quote>['\"])(?P<reason>.*)(?P=quote)$",
                          re.M)


class Outcome:
    """One test's result, from the JUnit file that ctest writes."""

    def __init__(self, case):
        self.name = case.get("name")
        self.seconds = float(case.get("time") or 0)
        self.failed = case.get("status") == "fail"
        self.skipped = case.find("skipped") is not None
        self.output = case.findtext("system-out") or ""

    def text(self):
        return f"{'FAILED' if self.failed else 'passed'} in {self.seconds:.1f} s"

    def skips(self):
        """One line for the test if it was skipped, or for each of its parts that was."""
        if self.skipped:
            lines = self.output.strip().splitlines() or ["it does not say why"]
            return [f"{self.name} was skipped: {lines[-1]}"]
        return [f"{self.name}: {found['part']} was skipped: {found['reason']}"
                for found in SKIPPED_PART.finditer(self.output)]

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


def test_environment(folder):
    """The environment, with python3 and python in PATH that are the interpreter itself.

    The python3 of a version manager (pyenv, asdf) is a shell script that takes a tenth of a second of a CPU at each
    start, and the tests start more than a thousand Pythons."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python3", "python"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(os.path.realpath(sys.executable))
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def run_ctest(preset, junit, *arguments):
    """Prints ctest's output at once. Returns the exit code and the lines of the summary."""
    junit.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    shows_all = sys.stdout.isatty()
    summary = []
    with subprocess.Popen(["ctest", "--preset", preset, "--output-junit", str(junit),
                           "--test-output-size-passed", str(PASSED_OUTPUT_BYTES), *arguments],
                          cwd=ROOT, env=test_environment(junit.parent / "python"), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stdout:
            if SUMMARY.search(line):
                summary.append(line.rstrip())
            if shows_all or not QUICK_PASS.search(line):
                print(line, end="", flush=True)
    return process.returncode, summary


def report(preset, build):
    """Prints the failed tests with both results, the slowest tests, and the names of the failed tests."""
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
    # The names again, for readers who see only the last lines of a log.
    for outcome in first.values():
        if outcome.failed:
            print(f"{preset}: FAILED: {outcome.name}")


def skip_lines(first, may_not_skip):
    """The lines about skipped tests for the summary, and whether a test was skipped that `may_not_skip` names."""
    lines = [line for outcome in first.values() for line in outcome.skips()]
    forbidden = [outcome.name for outcome in first.values()
                 if outcome.skipped and may_not_skip and re.search(may_not_skip, outcome.name)]
    return lines + [f"FAILED: {name} may not be skipped" for name in forbidden], bool(forbidden)


def main(preset, *arguments):
    build = ROOT / "build" / preset
    arguments = list(arguments)
    may_not_skip = None
    if "--may-not-skip" in arguments:
        place = arguments.index("--may-not-skip")
        may_not_skip = arguments[place + 1]
        del arguments[place:place + 2]
    if arguments == ["--again"]:
        report(preset, build)
        print((build / SUMMARY_TEXT).read_text(), end="")
        return 0
    (build / ALONE_XML).unlink(missing_ok=True)
    code, summary = run_ctest(preset, build / FIRST_XML, "--no-tests=error", *arguments)
    first = outcomes(build / FIRST_XML)
    failed = [outcome for outcome in first.values() if outcome.failed]
    if failed and len(failed) <= RERUNS_MAX:
        print(f"{preset}: the {len(failed)} tests that failed run again, one at a time", flush=True)
        run_ctest(preset, build / ALONE_XML, "--rerun-failed", "--parallel", "1")
    report(preset, build)
    skipped, is_forbidden = skip_lines(first, may_not_skip)
    lines = [*(f"{preset}: {line}" for line in skipped), *summary]
    (build / SUMMARY_TEXT).write_text("".join(f"{line}\n" for line in lines))
    print((build / SUMMARY_TEXT).read_text(), end="", flush=True)
    return code or (1 if is_forbidden else 0)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: {sys.argv[0]} PRESET [--again | [--may-not-skip REGEX] CTEST-ARGUMENTS...]")
    sys.exit(main(*sys.argv[1:]))
