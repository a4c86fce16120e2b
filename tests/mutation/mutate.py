#!/usr/bin/env python3
"""Changes one line of the product at a time, and counts the changes that no test notices.

    tests/mutation/mutate.py --count 100 --seed 1       in a tree of its own: it edits the product's files
    tests/mutation/mutate.py --files rendezvous/rounds/notices.cc --tests rendezvous_tests      all changes of a file

Each change is one of these: a condition is inverted, a comparison changes its edge, && becomes ||, a line is removed, a
constant changes. The seed chooses lines from all .cc files of the product with the same chance. Comments, logs, includes
and checks of the program itself are left out. For each change the script builds the programs of the tests with the labels
below in build/mutants, and runs those that were linked anew. A change is "noticed" (by the program that is named), has
"survived", or is "not linked": its file is only in programs that other tests start. A change that does not compile is not
counted. Each result is printed at once, and at the end the number of each."""
import argparse
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/mutants"
FOLDERS = ("agent", "base", "launcher", "musterctl", "pickle", "rendezvous", "worker_sdk/src")
LABELS = ("unit", "scenarios", "system")
PROGRAM = re.compile(r"^muster_add_tests\((\w+) (\w+)", re.MULTILINE)
TEST_S = 120  # A test that takes longer hangs: the change is noticed.

# A log, a check of the program itself, or a declaration: a change there is none of the behaviour.
LEFT_OUT = re.compile(r"spdlog|log_|MUSTER_CHECK|static_assert|using |namespace|#|case |default:|LINE|assert\(|template|"
                      r"operator|noexcept|override|virtual|friend|//")
STATEMENT = re.compile(r"^ {2,}(?!return|co_return|break|continue|throw|goto|delete|const |auto |constexpr |static |std::\w+(<.*>)? \w+;|else|"
                       r"public|private)[\w.\->\[\]*:]+(\(.*\)|\s[-+|&]?=\s.*|\+\+|--);$")
DECLARATION = re.compile(r"^ {2,}[\w:<>,*& ]+[ *&]\w+(\(.*\))?( = .*|\{.*\})?;$")


def changes_of(line):
    """(what, changed line) of all changes that this line allows."""
    code = re.sub(r'"(?:[^"\\]|\\.)*"', lambda text: '"' + "_" * (len(text[0]) - 2) + '"', line)

    def replaced(what, match, by):
        return what, line[:match.start()] + by + line[match.end():]
    if match := re.match(r"^(\s*(?:\} else )?if \()(?!.*;)(.*)(\) (?:\{|return.*;|continue;|break;|co_return.*;|[\w.\->]+.*;))$", code):
        begin, end = match.span(2)
        yield "inverted", f"{line[:begin]}!({line[begin:end]}){line[end:]}"
    for match in re.finditer(r" && | \|\| ", code):
        yield replaced("and/or", match, " || " if "&" in match[0] else " && ")
    for match in re.finditer(r" (==|!=|<=|>=|<|>) (?=[\w(:-])", code):
        if "template" in code or "for (" in code and match[1] == "!=":
            continue
        other = {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}[match[1]]
        yield replaced("edge", match, f" {other} ")
    for match in re.finditer(r"(?<![\w.'])\d+(?![\w.'])", code):
        yield replaced("constant", match, str(int(match[0]) + 1))
    for match in re.finditer(r"\b(true|false)\b", code):
        yield replaced("constant", match, "false" if match[1] == "true" else "true")
    if STATEMENT.match(code) and not DECLARATION.match(code):
        yield "removed", ""


def candidates(files):
    """(file, number, line) of all lines that allow a change."""
    for path in files or (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.cc"))):
        for number, line in enumerate(path.read_text().splitlines()):
            if not LEFT_OUT.search(line.split("//")[0].rstrip() or "//") and any(changes_of(line.split("  //")[0])):
                yield path, number, line.split("  //")[0]


def chosen(lines, seed):
    """(file, number, line, what, changed line), without end: the seed chooses."""
    chance = random.Random(seed)
    while True:
        path, number, line = chance.choice(lines)
        yield path, number, line, *chance.choice(list(changes_of(line)))


def every(lines):
    """The same for each change of each line, once."""
    for path, number, line in lines:
        for what, changed in changes_of(line):
            yield path, number, line, what, changed


def programs():
    lists = [path.read_text() for path in (ROOT / "tests").rglob("CMakeLists.txt")]
    return sorted({name for text in lists for name, label in PROGRAM.findall(text) if label in LABELS})


def build(targets):
    return subprocess.run(["cmake", "--build", str(BUILD), "-j", str(os.cpu_count()), "--target", *targets],
                          capture_output=True, text=True, check=False)


def fails(program, case_by_case=()):
    """Whether a program of tests fails, or does not end."""
    if program.name in case_by_case:
        listed = subprocess.run([program, "--list-test-names-only"], capture_output=True, text=True, check=False).stdout
        return any(fails_with(program, name.replace(",", "\\,").replace("[", "\\[")) for name in listed.splitlines())
    return fails_with(program)


def fails_with(program, *words):
    process = subprocess.Popen([program, "--abort", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, cwd=BUILD)
    try:
        return process.wait(TEST_S) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def result_of(targets, before, case_by_case):
    """The result of a change that was built, and the first test program that notices it."""
    linked = [BUILD / "tests" / name for name in targets if (BUILD / "tests" / name).stat().st_mtime_ns != before[name]]
    if not linked:
        return "not linked", ""
    by = next((program.name for program in linked if fails(program, case_by_case)), "")
    return ("noticed" if by else "survived"), by


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=24, help="end after this time")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first changes: those of an earlier call")
    parser.add_argument("--build", default="build/mutants", help="the build folder, in the root of the tree")
    parser.add_argument("--list", action="store_true", help="only print the changes")
    parser.add_argument("--files", nargs="+", default=(), metavar="FILE", help="make every change of these files, in place of --count chosen ones")
    parser.add_argument("--tests", nargs="+", metavar="PROGRAM", help="only these programs of tests")
    arguments = parser.parse_args()
    global BUILD
    BUILD = ROOT / arguments.build
    end = time.monotonic() + 3600 * arguments.hours
    lines = list(candidates([ROOT / name for name in arguments.files]))
    print(f"{len(lines)} lines allow a change", flush=True)
    count = math.inf if arguments.files else arguments.count
    targets = arguments.tests or programs()
    if not arguments.list:
        if not (BUILD / "build.ninja").exists():
            # -w: a change may leave a variable unused.
            subprocess.run(["cmake", "--preset", "release", "-B", str(BUILD), "-DMUSTER_UNITY=ON", "-DMUSTER_SDK=OFF",
                            "-DMUSTER_BENCH=OFF", "-DMUSTER_STATIC=OFF", "-DCMAKE_BUILD_TYPE=Release",
                            "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -w"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        done = build(targets)
        if done.returncode != 0:
            sys.exit(f"the tests do not build in {BUILD}:\n{done.stdout[-3000:]}")
        # Some cases expect to be alone in their process, as under ctest.
        case_by_case = [name for name in targets if fails(BUILD / "tests" / name)]
        if broken := [name for name in case_by_case if fails(BUILD / "tests" / name, case_by_case)]:
            sys.exit(f"these fail without a change: {broken}")
    results = {"noticed": 0, "survived": 0, "not linked": 0, "does not compile": 0}
    for path, number, line, what, changed in every(lines) if arguments.files else chosen(lines, arguments.seed):
        if sum(results.values()) - results["does not compile"] >= count or time.monotonic() >= end:
            break
        if arguments.skip > 0:
            arguments.skip -= 1
            continue
        where = f"{path.relative_to(ROOT)}:{number + 1}: {what}: {line.strip()}" + (f"  ->  {changed.strip()}" if changed else "")
        if arguments.list:
            results["noticed"] += 1
            print(where)
            continue
        text = path.read_text()
        whole = text.splitlines(keepends=True)
        whole[number] = changed + "\n"
        before = {name: (BUILD / "tests" / name).stat().st_mtime_ns for name in targets}
        begin = time.monotonic()
        try:
            path.write_text("".join(whole))
            if build(targets).returncode != 0:
                result, by = "does not compile", ""
            else:
                result, by = result_of(targets, before, case_by_case)
        finally:
            path.write_text(text)
        results[result] += 1
        print(f"{result:16} {time.monotonic() - begin:4.0f} s  {where}  {by}", flush=True)
    print(results)


if __name__ == "__main__":
    main()
